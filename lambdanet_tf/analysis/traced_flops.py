"""The operations that TensorFlow executes, from a traced graph.

TensorFlow's own profiler knows no einsum, so the products are counted here:
einsum, matrix products, convolutions and fast Fourier transforms, from the
shapes of their operands in the graph of a batch. A node belongs to the layer in
whose scope it lies. Loops, such as those of recurrent layers, are not entered.
Nodes that no output needs are not executed: Keras traces a first step beside
such a loop.
"""

import collections
import math

import tensorflow as tf

from lambdanet_tf.analysis.calls import all_calls


def executed_flops(model, shape, training=False):
    """Returns the operations of every layer, 2 per multiply-add.

    Args:
        model: a Keras model with one input.
        shape: (batch, height, width, channels).
        training: whether to count the forward pass of a training step, for
            which layers plan other algorithms and blocks than for inference.

    Returns:
        Counter from layer name to operations.
    """
    names = {layer.name for _, layer, _ in all_calls(model)}
    spec = tf.TensorSpec(shape, tf.float32)
    function = tf.function(lambda images: model(images, training=training))
    eagerly = tf.config.functions_run_eagerly()
    # Functions inside, as of grouped convolutions, are traced in line.
    tf.config.run_functions_eagerly(True)
    try:
        graph = function.get_concrete_function(spec).graph
    finally:
        tf.config.run_functions_eagerly(eagerly)
    flops = collections.Counter()
    for operation in _needed(graph):
        if count := operation_flops(operation):
            flops[_owner(operation.name, names)] += count
    return flops


def operation_flops(operation):
    """Returns the operations of a node of a graph; 0 unless it is a product."""
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
    if operation.type == "DepthwiseConv2dNative":
        window = operation.inputs[1].shape[:2]
        return 2 * math.prod(operation.outputs[0].shape) * math.prod(window)
    if operation.type in ("RFFT", "IRFFT"):
        return _fourier_operations(operation)
    return 0


def _needed(graph):
    """Returns the nodes of a function's graph that its outputs need."""
    found, rest = set(), [x.op for x in graph.outputs]
    while rest:
        operation = rest.pop()
        if operation not in found:
            found.add(operation)
            rest += [x.op for x in operation.inputs]
    return found


def _fourier_operations(operation):
    """Returns 5/2 N log2 N for each transform of N reals, as usual."""
    (points,) = tf.get_static_value(operation.inputs[1])
    transforms = math.prod(operation.inputs[0].shape[:-1])
    return transforms * round(2.5 * points * math.log2(points))


def _owner(node, names):
    """Returns the layer in whose name scope a node lies, or ""."""
    for part in node.split("/"):
        if part in names:
            return part
        stem, _, number = part.rpartition("_")  # TensorFlow numbers repeats.
        if number.isdigit() and stem in names:
            return stem
    return ""


def _einsum_products(operation):
    """Returns the product of the sizes of an equation's letters."""
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
