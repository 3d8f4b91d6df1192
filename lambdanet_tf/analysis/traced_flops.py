"""The operations that TensorFlow executes, from a traced graph.

TensorFlow's own profiler knows no einsum, so the products are counted here:
einsum, matrix products, convolutions and fast Fourier transforms, from the
shapes of their operands in the graph of a batch. A node belongs to the layer in
whose scope it lies. Functions are entered, such as those that compute grouped
convolutions. Loops, such as those of recurrent layers, are not. Nodes that no
output needs are not executed: Keras traces a first step beside such a loop.
"""

import collections
import math

import tensorflow as tf


def executed_flops(model, shape):
    """Operations of every layer of a model in inference, 2 per multiply-add.

    Args:
        model: a Keras model with one input.
        shape: (batch, height, width, channels).

    Returns:
        Counter from layer name to operations.
    """
    names = {layer.name for layer in model.layers}
    spec = tf.TensorSpec(shape, tf.float32)
    function = tf.function(lambda images: model(images, training=False))
    graph = function.get_concrete_function(spec).graph
    flops = collections.Counter()
    for operation in _needed(graph):
        if count := operation_flops(operation):
            flops[_owner(operation.name, names)] += count
    return flops


def operation_flops(operation, functions=None):
    """Operations of a node of a graph; 0 unless it is a product.

    Args:
        operation: the node.
        functions: the graph that knows the functions it calls; None for its
            own.
    """
    if operation.type in ("Einsum", "XlaEinsum"):
        return 2 * _einsum_products(operation)
    if operation.type.split("V")[0] in ("MatMul", "BatchMatMul"):  # V2, V3
        transposed = "transpose_a" if operation.type == "MatMul" else "adj_x"
        axis = -2 if operation.get_attr(transposed) else -1
        inner = operation.inputs[0].shape[axis]
        return 2 * math.prod(operation.outputs[0].shape) * inner
    if operation.type in ("Conv2D", "Conv3D"):
        *window, inputs, _ = operation.inputs[1].shape
        outputs = math.prod(operation.outputs[0].shape)
        return 2 * outputs * math.prod(window) * inputs
    if operation.type in ("Conv2DBackpropInput", "Conv3DBackpropInputV2"):
        # A transposed convolution, of its inputs by its kernel.
        _, kernel, inputs = (x.shape for x in operation.inputs)
        return 2 * math.prod(inputs) * math.prod(kernel[:-1])
    if operation.type in ("PartitionedCall", "StatefulPartitionedCall"):
        name = operation.get_attr("f").name
        called = (functions or operation.graph)._get_function(name).graph
        inner = _operations(called, operation.inputs)
        return sum(operation_flops(one, called) for one in inner)
    if operation.type == "DepthwiseConv2dNative":
        window = operation.inputs[1].shape[:2]
        return 2 * math.prod(operation.outputs[0].shape) * math.prod(window)
    if operation.type in ("RFFT", "IRFFT"):
        return _fourier_operations(operation)
    return 0


def _needed(graph):
    """The nodes of a function's graph that its outputs need."""
    found, rest = set(), [x.op for x in graph.outputs]
    while rest:
        operation = rest.pop()
        if operation not in found:
            found.add(operation)
            rest += [x.op for x in operation.inputs]
    return found


def _operations(function, inputs):
    """The nodes of a function for such inputs, those of known shapes.

    It may have been traced for others, such as batches of any size.
    """
    known = list(zip(function.inputs, inputs, strict=True))
    for operation in function.get_operations():
        if operation.type == "ReadVariableOp":  # Of a handle without a shape.
            known.append((operation.outputs[0], operation.outputs[0]))
    with tf.Graph().as_default() as graph:
        given = {
            old.name: tf.compat.v1.placeholder(x.dtype, x.shape)
            for old, x in known
        }
        tf.graph_util.import_graph_def(function.as_graph_def(), given)
    for needed in _needed(function):
        operation = graph.get_operation_by_name(f"import/{needed.name}")
        tensors = (*operation.inputs, *operation.outputs)
        if all(x.shape.is_fully_defined() for x in tensors):
            yield operation


def _fourier_operations(operation):
    """By the usual convention, 5/2 N log2 N for a transform of N reals."""
    (points,) = tf.get_static_value(operation.inputs[1])
    transforms = math.prod(operation.inputs[0].shape[:-1])
    return transforms * round(2.5 * points * math.log2(points))


def _owner(node, names):
    """The layer in whose name scope a node of a graph lies, or ""."""
    for part in node.split("/"):
        if part in names:
            return part
        stem, _, number = part.rpartition("_")  # TensorFlow numbers repeats.
        if number.isdigit() and stem in names:
            return stem
    return ""


def _einsum_products(operation):
    """The number of products: that of all letters of the equation."""
    equation = operation.get_attr("equation").decode()
    terms = equation.split("->")[0].split(",")
    if len(terms) == 1:
        return 0  # A transposition.
    sizes = {}
    for term, tensor in zip(terms, operation.inputs, strict=True):
        head, _, tail = term.partition("...")
        hidden = range(len(head) + len(tail) - len(tensor.shape), 0)
        for label, size in zip(
            [*head, *hidden, *tail], tensor.shape, strict=True
        ):
            sizes[label] = max(size, sizes.get(label, 1))
    return math.prod(sizes.values())
