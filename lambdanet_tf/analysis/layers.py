"""What one layer costs, by the paper's conventions.

Operations are 2 per multiply-add of convolutions and matrix products;
normalizations, activations and pooling count nothing. In a lambda layer the
scope is clipped to the map, and the layer is counted before any pooling that
follows it. With n query and m context positions, r = min(scope, size) per
axis, and g = 1 (or h groups with `multi_head`):

    projections      n c h k  +  m c g k u  +  m c g v u
    content lambda   m g k v u
    position lambdas n r g k v u
    position bias    n h k
    applied          n h k v

In attention each query sees r positions, the product of min(scope, size) over
the axes that it attends to; its tables have q embeddings for it, r in a joint
table, and the sum instead of the product in tables per axis:

    projections      n c h k  +  m c h k  +  m c h v
    content scores   n r h k
    position scores  n q h k
    weighted values  n r h v
"""

import dataclasses
import math

import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from lambdanet_tf.layers import SqueezeExcite

_CONVOLUTIONS = (tf.keras.layers.Conv2D, tf.keras.layers.DepthwiseConv2D)


@dataclasses.dataclass(frozen=True)
class LayerCount:
    """The costs of one layer for one image.

    Attributes:
        name: of the layer.
        kind: its class.
        output_shape: without the batch; () if it has several outputs.
        parameters: trainable ones; shared weights count in their first layer.
        flops: operations by the paper's convention.
        executed_flops: operations of the products that TensorFlow executes.
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


def layer_flops(layer):
    """Operations of a built layer of a model, for one image.

    Returns:
        int, or None for a layer that has weights and is not known here.
    """
    if isinstance(layer, (LambdaLayer, LambdaConv)):
        return _lambda_flops(layer)
    if isinstance(layer, RelativeAttention):
        return _attention_flops(layer)
    if isinstance(layer, SqueezeExcite):
        return 2 * 2 * math.prod(layer.reduce.kernel.shape)
    if type(layer) in _CONVOLUTIONS:  # Not those derived from them.
        return 2 * _positions(layer.output) * _kernel_size(layer)
    if isinstance(layer, tf.keras.layers.Dense):
        return 2 * _positions(layer.output) * math.prod(layer.kernel.shape)
    free = isinstance(layer, tf.keras.layers.BatchNormalization)
    return 0 if free or not layer.weights else None


def lambda_bytes(layer, itemsize):
    """Memory of a lambda layer beside its output, for one image.

    Returns:
        Bytes of activations, of the embeddings of all pairs, of the table.
    """
    n, m = _positions(layer.output), _positions(layer.input)
    groups, depths = _groups(layer), layer.key_dim * layer.intra_depth
    widths = layer.value_dim * layer.intra_depth * groups
    activations = n * layer.num_heads * layer.key_dim + m * widths
    pairs = table = 0
    if layer.use_content:
        activations += m * groups * depths
    if layer.use_position:
        activations += n * groups * layer.key_dim * layer.value_dim
        pairs = n * m * groups * depths
        table = math.prod(layer.position_embedding.embeddings.shape)
    return activations * itemsize, pairs * itemsize, table * itemsize


def attention_bytes(layer, itemsize):
    """Memory of an attention layer beside its output, for one image.

    Returns:
        As `lambda_bytes`.
    """
    n, heads = _positions(layer.output), layer.num_heads
    depths = layer.key_depth * (1 + layer.use_content) + layer.value_dim
    activations = n * heads * (depths + math.prod(_attended(layer)))
    pairs = [size**2 for size in _attended_sizes(layer)]
    pairs = [math.prod(pairs)] if layer.position_embedding else pairs
    tables = [math.prod(table.embeddings.shape) for table in layer.tables()]
    held = sum(pairs) * layer.key_depth if tables else 0
    return activations * itemsize, held * itemsize, sum(tables) * itemsize


def _attention_flops(layer):
    n, m = _positions(layer.output), _positions(layer.input)
    channels, heads = layer.input.shape[-1], layer.num_heads
    k, v, seen = layer.key_depth, layer.value_dim, _attended(layer)
    products = n * channels * heads * k + m * channels * heads * v
    if layer.use_content:
        products += m * channels * heads * k
        products += n * math.prod(seen) * heads * k
    if layer.tables():
        is_joint = layer.position_embedding is not None
        products += n * (math.prod(seen) if is_joint else sum(seen)) * heads * k
    products += n * math.prod(seen) * heads * v
    return 2 * products


def _attended(layer):
    """Positions that a query sees on each axis that it attends to."""
    return _clipped(layer.scope, _attended_sizes(layer))


def _attended_sizes(layer):
    sizes = tuple(layer.input.shape[1:-1])
    return sizes if layer.axis is None else (sizes[layer.axis - 1],)


def _clipped(scope, sizes):
    """The scope on each axis, or the axis where that is less."""
    scope = scope or sizes
    if isinstance(scope, int):
        scope = (scope,) * len(sizes)
    return [min(r, size) for r, size in zip(scope, sizes, strict=True)]


def state_bytes(layer):
    """Memory of the streaming state of a lambda layer, for one sequence."""
    try:
        spec = layer.state_spec(1)
    except ValueError:  # It does not stream.
        return 0
    return sum(
        math.prod(part.shape) * part.dtype.size for part in spec.values()
    )


def _lambda_flops(layer):
    n, m = _positions(layer.output), _positions(layer.input)
    groups, channels = _groups(layer), layer.input.shape[-1]
    k, u, v = layer.key_dim, layer.intra_depth, layer.value_dim
    products = n * channels * layer.num_heads * k  # Queries.
    products += m * channels * groups * v * u  # Values.
    if layer.use_content:
        products += m * channels * groups * k * u + m * groups * k * v * u
    if layer.use_position:
        products += n * _entries(layer) * groups * k * v * u
    if layer.use_position_bias:
        products += n * layer.num_heads * k
    products += n * layer.num_heads * k * v
    return 2 * products


def _entries(layer):
    """Relative positions of the scope, clipped to the map."""
    return math.prod(_clipped(layer.scope, tuple(layer.input.shape[1:-1])))


def _groups(layer):
    return layer.num_heads if layer.multi_head else 1


def _kernel_size(layer):
    """Products per output position of a convolution."""
    weight = layer.weights[0]  # Its name is not the same in both Kerases.
    return math.prod(weight.shape)


def _positions(x):
    """Positions of a Keras tensor (batch, *positions, channels)."""
    return math.prod(x.shape[1:-1])
