"""The cost of one layer, by the paper's conventions.

We count 2 operations per multiply-add of convolutions and matrix products, and
none for normalizations, activations and pooling. We clip the scope of a lambda
layer to the map, and count the layer before any pooling that follows it. With n
query and m context positions and r = min(scope, size) per axis:

    projections      n c h k  +  m c k u  +  m c v u
    content lambda   m k v u
    position lambdas n r k v u
    position bias    n h k
    applied          n h k v

In attention, each query sees r positions, the product of min(scope, size) over
the axes that it attends to. It uses q embeddings: r of a joint table, or the
sum instead of the product for tables per axis:

    projections      n c h k  +  m c h k  +  m c h v
    content scores   n r h k
    position scores  n q h k
    weighted values  n r h v

In a causal layer, r counts the query and its past only: entries of the scope,
or for a global layer the mean over all queries.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from lambdanet_tf.layers import SqueezeExcite
from lambdanet_tf.models.graph import arguments_of
from lambdanet_tf.models.graph import named_arguments
from lambdanet_tf.models.graph import output_of
from lambdanet_tf.models.graph import symbolic


@dataclasses.dataclass(frozen=True)
class LayerCount:
    """The costs of one layer for one image.

    Attributes:
        name: the layer's name; `model/layer` in a nested model, and
            `layer_call2` for a second call.
        kind: its class.
        output_shape: without the batch; () if it has several outputs.
        parameters: trainable ones; shared weights count in their first layer.
        flops: operations by the paper's convention.
        executed_flops: operations of the products that TensorFlow executes,
            without loops. The first call of a layer counts all its calls.
        activation_bytes: the output, queries, keys, values and position
            lambdas (the paper's b n k v) or the attention map (b h n r).
        algorithm: the algorithm of a lambda layer in inference.
    """

    name: str
    kind: str
    output_shape: tuple[int, ...]
    parameters: int
    flops: int
    executed_flops: int
    activation_bytes: int
    algorithm: str = ""


class Costs(NamedTuple):
    """Multiply-adds of a call, and numbers that it holds, without outputs."""

    products: int
    activations: int = 0


def call_costs(layer: Any, node: Any) -> Costs | None:
    """Returns the costs of a call; None if unknown or without a formula."""
    tensors = symbolic((arguments_of(node), node.outputs))
    if any(None in x.shape[1:] for x in tensors):
        return None
    if formula := _FORMULAS.get(type(layer)):
        return formula(layer, node)
    has_matrix = any(len(weight.shape) > 1 for weight in layer.weights)
    return None if has_matrix else Costs(0)


def _lambda(layer, node):
    inputs, context = _inputs_and_context(layer, node)
    n, m = _positions(output_of(node)), _positions(context)
    h, k, u = layer.num_heads, layer.key_dim, layer.intra_depth
    v, channels = layer.value_dim, context.shape[-1]
    products = n * inputs.shape[-1] * h * k + n * h * k * v
    products += m * channels * v * u
    activations = n * h * k + m * v * u
    if layer.use_content:
        products += m * channels * k * u + m * k * v * u
        activations += m * k * u
    if layer.use_position:
        seen = _clipped(layer.scope, tuple(context.shape[1:-1]))
        products += n * _pairs(layer, seen) * k * v * u
        activations += n * k * v
    if layer.use_position_bias:
        products += n * h * k
    return Costs(products, activations)


def _attention(layer, node):
    inputs, context = _inputs_and_context(layer, node)
    n, m = _positions(output_of(node)), _positions(context)
    channels, h = context.shape[-1], layer.num_heads
    k, v = layer.key_depth, layer.value_dim
    sizes = tuple(context.shape[1:-1])
    if layer.axis is not None:
        sizes = (sizes[layer.axis - 1],)
    seen = _clipped(layer.scope, sizes)  # By a query, on each axis.
    pairs = _pairs(layer, seen)
    products = n * inputs.shape[-1] * h * k + n * pairs * h * v
    products += m * channels * h * v
    if layer.use_content:
        products += m * channels * h * k + n * pairs * h * k
    if layer.tables():
        is_joint = layer.position_embedding is not None or len(sizes) == 1
        products += n * (pairs if is_joint else sum(seen)) * h * k
    held = k * (1 + layer.use_content) + v + math.prod(seen)
    return Costs(products, n * h * held)


def _squeeze_excite(layer, node):
    return Costs(2 * math.prod(layer.reduce.kernel.shape))


def _by_position(layer, node):
    """Counts a kernel that is applied at each position."""
    kernel = layer.weights[0]  # A depthwise kernel's name depends on Keras.
    return Costs(_positions(output_of(node)) * math.prod(kernel.shape))


_FORMULAS: dict[type, Callable[[Any, Any], Costs]] = {
    LambdaLayer: _lambda,
    LambdaConv: _lambda,
    RelativeAttention: _attention,
    SqueezeExcite: _squeeze_excite,
    tf.keras.layers.Conv1D: _by_position,
    tf.keras.layers.Conv2D: _by_position,
    tf.keras.layers.Dense: _by_position,
    tf.keras.layers.DepthwiseConv2D: _by_position,
}


def _clipped(scope, sizes):
    """Returns the scope on each axis, clipped to the size of the axis."""
    scope = scope or sizes
    if isinstance(scope, int):
        scope = (scope,) * len(sizes)
    return [min(r, size) for r, size in zip(scope, sizes, strict=True)]


def _pairs(layer, seen):
    """Returns how many positions a query sees, from those on each axis."""
    number = math.prod(seen)
    # All entries of a causal `LambdaConv` are in the past.
    is_halved = layer.causal and type(layer) is not LambdaConv
    return number - (number - 1) // 2 if is_halved else number


def _inputs_and_context(layer, node):
    """Returns the inputs and the context of a call."""
    arguments = named_arguments(layer, *arguments_of(node))
    inputs, context = arguments["inputs"], arguments.get("context")
    return inputs, inputs if context is None else context


def _positions(x):
    return math.prod(x.shape[1:-1])
