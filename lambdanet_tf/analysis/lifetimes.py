"""The memory that a graph needs at once, from when its tensors are used.

A tensor lives from the operation that makes it to the last one that reads it.
With the operations in the order of the graph, the sum of what lives together
has a peak; what the backward pass reads of the forward pass is part of it.
It is an estimate: the executor may take another order, and what an operation
allocates for itself while it runs is not seen.
"""

import math

# What these return is the memory of their first input.
_VIEWS = frozenset(
    {"EnsureShape", "ExpandDims", "Identity", "PreventGradient", "Reshape"}
    | {"Squeeze", "StopGradient"}
)
# These write their result over an input of its size that nobody needs again.
_IN_PLACE = frozenset(
    {"Add", "AddN", "AddV2", "BiasAdd", "Cast", "Exp", "Maximum", "Minimum"}
    | {"Mul", "Neg", "RealDiv", "Relu", "Relu6", "Relu6Grad", "ReluGrad"}
    | {"Rsqrt", "Sigmoid", "SigmoidGrad", "Softmax", "Sqrt", "Square"}
    | {"SquaredDifference", "Sub", "Tanh", "TanhGrad"}
)
# These return what is there before the graph runs.
_GIVEN = frozenset({"Const", "Placeholder", "ReadVariableOp", "VarHandleOp"})


def peak_bytes(graph):
    """The memory that the tensors of a graph need at once, at most.

    What is there before, variables, constants and inputs, does not count. What
    the graph returns lives to its end.

    Args:
        graph: the graph of a concrete function whose shapes are known; tensors
            of unknown shapes count nothing.

    Returns:
        int. Bytes.
    """
    operations = graph.get_operations()
    owner, last_use = {}, {}
    for number, operation in enumerate(operations):
        for tensor in operation.outputs:
            is_view = operation.type in _VIEWS
            source = operation.inputs[0] if is_view else tensor
            owner[id(tensor)] = owner.get(id(source), id(tensor))
        for tensor in operation.inputs:
            last_use[owner[id(tensor)]] = number
    for tensor in graph.outputs:
        last_use[owner[id(tensor)]] = len(operations)
    return _simulated(operations, owner, last_use)


def _simulated(operations, owner, last_use):
    living, now, peak = {}, 0, 0
    for number, operation in enumerate(operations):
        dying = {
            owner[id(tensor)]
            for tensor in operation.inputs
            if last_use[owner[id(tensor)]] == number
        }
        for tensor in operation.outputs:
            size = _size(tensor)
            if owner[id(tensor)] != id(tensor) or operation.type in _GIVEN:
                continue
            reused = operation.type in _IN_PLACE and next(
                (other for other in dying if living.get(other) == size), None
            )
            if reused:
                now -= living.pop(reused)
            living[id(tensor)] = size
            now += size
        peak = max(peak, now)
        dying.update(
            id(tensor)
            for tensor in operation.outputs
            if id(tensor) not in last_use
        )
        for buffer in dying:
            now -= living.pop(buffer, 0)
    return peak


def _size(tensor):
    """Bytes of a tensor; 0 if its shape or type has no size."""
    if not tensor.shape.is_fully_defined() or not tensor.dtype.size:
        return 0
    return math.prod(tensor.shape) * tensor.dtype.size
