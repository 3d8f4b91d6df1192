"""What one layer costs, by the paper's conventions.

Operations are 2 per multiply-add of convolutions and matrix products;
normalizations, activations and pooling count nothing. In a lambda layer the
scope is clipped to the map, and the layer is counted before any pooling that
follows it. With n query and m context positions, r = min(scope, size) per
axis:

    projections      n c h k  +  m c k u  +  m c v u
    content lambda   m k v u
    position lambdas n r k v u
    position bias    n h k
    applied          n h k v

In attention each query sees r positions, the product of min(scope, size) over
the axes that it attends to; its tables have q embeddings for it, r in a joint
table, and the sum instead of the product in tables per axis:

    projections      n c h k  +  m c h k  +  m c h v
    content scores   n r h k
    position scores  n q h k
    weighted values  n r h v

In a causal layer r is the part that is not in the future: of a scope r the
entries of the query and its past, of a global layer the mean over all queries.
A recurrent layer multiplies by its kernels at each position.
"""

import dataclasses
import math
from typing import NamedTuple

import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import RelativeAttention
from lambdanet_tf.layers import SqueezeExcite
from lambdanet_tf.layers.lambda_base import LambdaBase
from lambdanet_tf.models.graph import arguments_of
from lambdanet_tf.models.graph import named_arguments
from lambdanet_tf.models.graph import output_of
from lambdanet_tf.models.graph import symbolic

_CONVOLUTIONS = (
    tf.keras.layers.Conv1D,
    tf.keras.layers.Conv2D,
    tf.keras.layers.DepthwiseConv2D,
)
_RECURRENT = (
    tf.keras.layers.SimpleRNN,
    tf.keras.layers.GRU,
    tf.keras.layers.LSTM,
)


@dataclasses.dataclass(frozen=True)
class LayerCount:
    """The costs of one layer for one image.

    Attributes:
        name: of the layer.
        kind: its class.
        output_shape: without the batch; () if it has several outputs.
        parameters: trainable ones; shared weights count in their first layer.
        flops: operations by the paper's convention.
        executed_flops: operations of the products that TensorFlow executes,
            without those in loops, such as a recurrent layer's.
        activation_bytes: the output and, in a lambda layer, queries, keys,
            values and position lambdas (the paper's b n k v); in attention,
            queries, keys, values and the attention map (b h n r).
        embedding_bytes: the embeddings of all pairs of positions (the paper's
            k n m), once for the whole batch; in attention with tables per
            axis, those of all pairs along each axis.
        table_bytes: the table that they are read from.
        algorithm: of a lambda layer, in inference.
        state_bytes: the state with which a causal lambda layer streams,
            whatever the length of the sequence; 0 if it cannot.

    Examples:
        >>> model = models.LambdaResNetSmall()
        >>> last = analysis.analyze(model, executed=False).layers[-1]
        >>> last.name, last.kind, last.parameters
        ('predictions', 'Dense', 5130)
    """

    name: str
    kind: str
    output_shape: tuple[int, ...]
    parameters: int
    flops: int
    executed_flops: int
    activation_bytes: int
    embedding_bytes: int
    table_bytes: int
    algorithm: str = ""
    state_bytes: int = 0


class Costs(NamedTuple):
    """What a layer costs for one image.

    Attributes:
        flops: operations by the paper's convention.
        activations: numbers that it holds in addition to its output.
        embeddings: numbers of the embeddings of all pairs of positions.
        table: numbers of the table that they are read from.
    """

    flops: int
    activations: int = 0
    embeddings: int = 0
    table: int = 0


def layer_costs(layer, call):
    """Counts what a built layer of a model costs, for one image.

    Args:
        layer: of any kind.
        call: of it in the model.

    Returns:
        `Costs`, or None for a layer that has weights and is not known here, or
        whose inputs or outputs have unknown sizes.
    """
    tensors = symbolic((arguments_of(call), call.outputs))
    if any(None in x.shape[1:] for x in tensors):
        return None
    if isinstance(layer, LambdaBase):
        return _lambda_costs(layer, call)
    if isinstance(layer, RelativeAttention):
        return _attention_costs(layer, call)
    if isinstance(layer, tf.keras.layers.MultiHeadAttention):
        return _keras_attention_costs(layer, call)
    if isinstance(layer, SqueezeExcite):
        return Costs(2 * 2 * math.prod(layer.reduce.kernel.shape))
    # Products per position; a depthwise kernel's name differs by Keras. Not
    # of layers that are derived from convolutions.
    if type(layer) in _CONVOLUTIONS or isinstance(layer, tf.keras.layers.Dense):
        is_dense = isinstance(layer, tf.keras.layers.Dense)
        # A quantized layer's bias may come first, and its kernel be packed.
        kernel = layer.kernel if is_dense else layer.weights[0]
        grid = output_of(call).shape[1:-1]
        if getattr(layer, "data_format", None) == "channels_first":
            grid = output_of(call).shape[2:]
        return Costs(2 * math.prod(grid) * math.prod(kernel.shape))
    if type(layer) in _RECURRENT:  # Of the inputs, and of the state.
        products = sum(math.prod(kernel.shape) for kernel in layer.weights[:2])
        inputs, *_ = symbolic(arguments_of(call))
        return Costs(2 * _positions(inputs) * products)
    free = isinstance(layer, tf.keras.layers.BatchNormalization)
    return Costs(0) if free or not layer.weights else None


def _lambda_costs(layer, call):
    inputs, context = _inputs_and_context(layer, call)
    n, m = _positions(output_of(call)), _positions(context)
    h, k, u, v = (
        layer.num_heads,
        layer.key_dim,
        layer.intra_depth,
        layer.value_dim,
    )
    channels = context.shape[-1]
    products = n * inputs.shape[-1] * h * k + n * h * k * v
    products += m * channels * v * u
    activations = n * h * k + m * v * u
    pairs = table = 0
    if layer.use_content:
        products += m * channels * k * u + m * k * v * u
        activations += m * k * u
    if layer.use_position:
        seen = _clipped(layer.scope, tuple(context.shape[1:-1]))
        products += n * _pairs(layer, seen) * k * v * u
        activations += n * k * v
        pairs = n * m * k * u
        if layer.position_embedding is not None:
            table = math.prod(layer.position_embedding.embeddings.shape)
    if layer.use_position_bias:
        products += n * h * k
    return Costs(2 * products, activations, pairs, table)


def _attention_costs(layer, call):
    inputs, context = _inputs_and_context(layer, call)
    n, m = _positions(output_of(call)), _positions(context)
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
    held = k * (1 + layer.use_content) + v + math.prod(seen)
    tables = [math.prod(table.embeddings.shape) for table in layer.tables()]
    embeddings = 0
    if tables:
        is_joint = layer.position_embedding is not None or len(sizes) == 1
        products += n * (pairs if is_joint else sum(seen)) * h * k
        squares = [size**2 for size in sizes]
        embeddings = k * (math.prod(squares) if is_joint else sum(squares))
    return Costs(2 * products, n * h * held, embeddings, sum(tables))


def _keras_attention_costs(layer, call):
    """Of Keras' own attention: all pairs, and a projection of the outputs."""
    arguments = named_arguments(layer, *arguments_of(call))
    query, value, *_ = 2 * list(arguments.values())
    n, m = _positions(query), _positions(value)
    config = layer.get_config()
    seen = m
    if config["attention_axes"] is not None:
        seen = math.prod(value.shape[x] for x in config["attention_axes"])
    h, k = config["num_heads"], config["key_dim"]
    v = config["value_dim"] or k
    queries, keys, values, outputs = (
        math.prod(getattr(layer, f"_{part}_dense").kernel.shape)
        for part in ("query", "key", "value", "output")
    )
    products = n * (queries + outputs) + m * (keys + values)
    products += n * seen * h * (k + v)
    return Costs(2 * products, n * h * (k + v + seen))


def _clipped(scope, sizes):
    """The scope on each axis, or the axis where that is less."""
    scope = scope or sizes
    if isinstance(scope, int):
        scope = (scope,) * len(sizes)
    return [min(r, size) for r, size in zip(scope, sizes, strict=True)]


def _pairs(layer, seen):
    """Positions that a query sees, of what its layer sees on each axis."""
    number = math.prod(seen)
    # All taps of a causal `LambdaConv` are of the past.
    is_halved = layer.causal and not isinstance(layer, LambdaConv)
    return number - (number - 1) // 2 if is_halved else number


def _inputs_and_context(layer, call):
    """What queries, and what keys and values are made of."""
    arguments = named_arguments(layer, *arguments_of(call))
    inputs, context = arguments["inputs"], arguments.get("context")
    return inputs, inputs if context is None else context


def _positions(x):
    """Positions of a Keras tensor (batch, *positions, channels)."""
    return math.prod(x.shape[1:-1])


def algorithm(layer):
    """The algorithm of a lambda layer in inference; "" if it needs none."""
    has_plan = isinstance(layer, LambdaBase) and layer.use_position
    plan = layer.inference_plan if has_plan else None
    return "" if plan is None else plan.algorithm


def state_bytes(layer):
    """Memory of the streaming state of a lambda layer, for one sequence."""
    if not isinstance(layer, LambdaBase):
        return 0
    try:
        spec = layer.state_spec(1)
    except ValueError:  # It does not stream.
        return 0
    return sum(
        math.prod(part.shape) * part.dtype.size for part in spec.values()
    )
