"""The operations that TensorFlow executes, from a traced graph.

TensorFlow's own profiler does not count einsum. So we count einsum, matrix
products, convolutions and fast Fourier transforms, from the shapes of their
operands in the graph of a batch. A node belongs to the layer in whose scope it
lies. We do not enter loops, such as those of recurrent layers.
"""

import collections
import math

import tensorflow as tf

from lambdanet_tf.analysis.calls import all_calls


def executed_flops(model, shape, training=False):
    """Counts the operations of every layer's forward pass."""
    names = {layer.name for _, layer, _ in all_calls(model)}
    spec = tf.TensorSpec(shape, tf.float32)
    function = tf.function(lambda images: model(images, training=training))
    eagerly = tf.config.functions_run_eagerly()
    # Traces inner functions, such as grouped convolutions, in line.
    tf.config.run_functions_eagerly(True)
    try:
        graph = function.get_concrete_function(spec).graph
    finally:
        tf.config.run_functions_eagerly(eagerly)
    flops = collections.Counter()
    for operation in graph.get_operations():
        if count := operation_flops(operation):
            flops[_owner(operation.name, names)] += count
    return flops


def operation_flops(operation):
    """Returns the operations of a graph's node; 0 unless it is a product."""
    if operation.type in ("Einsum", "XlaEinsum"):
        return 2 * _einsum_products(operation)
    if operation.type.split("V")[0] in ("MatMul", "BatchMatMul"):  # V2, V3
        transposed = "transpose_a" if operation.type == "MatMul" else "adj_x"
        axis = -2 if operation.get_attr(transposed) else -1
        inner = operation.inputs[0].shape[axis]
        return 2 * math.prod(operation.outputs[0].shape) * inner
    if "Conv" in operation.type:
        # Every output position uses the whole kernel; in a transposed
        # convolution, every input position.
        is_transposed = "BackpropInput" in operation.type
        x = operation.inputs[2] if is_transposed else operation.outputs[0]
        kernel = operation.inputs[1]
        return 2 * math.prod(x.shape[:-1]) * math.prod(kernel.shape)
    if operation.type in ("RFFT", "IRFFT"):
        return _fourier_operations(operation)
    return 0


def _fourier_operations(operation):
    """Returns the usual 5/2 N log2 N for each transform of N reals."""
    (points,) = tf.get_static_value(operation.inputs[1])
    transforms = math.prod(operation.inputs[0].shape[:-1])
    return transforms * round(2.5 * points * math.log2(points))


def _owner(node, names):
    """Returns the layer in whose name scope a node lies, or ""."""
    for part in node.split("/"):
        if part in names:
            return part
        stem, _, number = part.rpartition("_")  # TensorFlow appends a number.
        if number.isdigit() and stem in names:
            return stem
    return ""


def _einsum_products(operation):
    """Returns the number of outputs times the sizes of the summed letters."""
    terms, result = operation.get_attr("equation").decode().split("->")
    if "," not in terms:
        return 0  # A transposition.
    sizes = {}
    for term, tensor in zip(terms.split(","), operation.inputs, strict=True):
        # From the last axis, because an ellipsis stands for the first ones.
        sizes |= zip(term[::-1], reversed(tensor.shape), strict=False)
    summed = [size for x, size in sizes.items() if x not in result]
    return math.prod(operation.outputs[0].shape) * math.prod(summed)
