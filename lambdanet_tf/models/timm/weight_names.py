"""Weights of timm's lambda networks: their names and layouts, and ours.

timm (PyTorch Image Models) builds `lambda_resnet26t` and its like as a
`ByobNet` of bottleneck and self-attention blocks. Its state dicts correspond
to our weights by name:

    stem.conv1.conv.weight                  stem_conv1/kernel
    stem.conv1.bn.running_mean              stem_conv1_norm/moving_mean
    stages.2.0.conv1_1x1.conv.weight        stage4_block1_conv1/kernel
    stages.2.0.conv2_kxk.conv.weight        stage4_block1_conv2/kernel
    stages.2.0.conv3_1x1.bn.weight          stage4_block1_conv3_norm/gamma
    stages.2.0.shortcut.conv.weight         stage4_block1_shortcut/kernel
    stages.2.1.self_attn.qkv.weight         stage4_block2_lambda/query/kernel,
                                            .../key/kernel, .../value/kernel
    stages.2.1.self_attn.norm_q.bias        .../query_norm/beta
    stages.2.1.self_attn.conv_lambda.weight .../position_embedding/embeddings
    stages.2.1.self_attn.conv_lambda.bias   .../position_bias
    stages.2.1.self_attn.pos_emb            .../position_embedding/embeddings
    stages.2.1.post_attn.weight             stage4_block2_lambda_norm/gamma
    head.fc.weight                          predictions/kernel

Only axes are permuted: both directions are exact. timm's batch normalizations
count batches (`num_batches_tracked`), which nothing reads: 0 on the way back.
"""

import dataclasses
from collections.abc import Iterator
from collections.abc import Mapping

import numpy as np

from lambdanet_tf import specs
from lambdanet_tf.models.timm.expressible import check_expressible
from lambdanet_tf.models.weight_names import check_fit

_NETWORK = "the network of timm"
_NORM = (
    ("weight", "gamma"),
    ("bias", "beta"),
    ("running_mean", "moving_mean"),
    ("running_var", "moving_variance"),
)


@dataclasses.dataclass(frozen=True)
class TimmTensor:
    """A tensor of a state dict, and the weights of ours that it holds.

    Attributes:
        key: in the state dict.
        shape: there; None where any size fits.
        names: of our weights; () for counters.
        layout: how it holds them, a key of `_LAYOUTS`.
        units: output channels of each weight, where it holds several.
    """

    key: str
    shape: tuple[int | None, ...]
    names: tuple[str, ...]
    layout: str = "same"
    units: tuple[int, ...] = ()


def timm_tensors(
    spec: specs.ResNetSpec,
    classes: int | None = None,
    channels: int | None = None,
    image_size: int | None = None,
) -> tuple[TimmTensor, ...]:
    """Lists the state dict of timm's network of a spec, in timm's order.

    Args:
        spec: of a network.
        classes: of its classifier; None for any number.
        channels: of its images; None for any number.
        image_size: height and width of its images, which the tables of a
            global scope depend on; None for any.

    Raises:
        ValueError: if timm's layout cannot express the network; says why.
    """
    check_expressible(spec)
    return tuple(_tensors(spec, classes, channels, image_size))


def from_timm(
    tensors: tuple[TimmTensor, ...],
    state: Mapping[str, np.ndarray],
    origin: str,
) -> dict[str, np.ndarray]:
    """Converts a whole state dict of timm to our weights.

    Args:
        tensors: what it must hold, see `timm_tensors`.
        state: arrays by timm's names.
        origin: where they are from, for messages.

    Returns:
        float32 arrays by the names of `named_weights`.

    Raises:
        ValueError: if anything is missing, unexpected or of another shape.
    """
    check_state(tensors, state, origin)
    arrays = {}
    for tensor in tensors:
        to_ours, _ = _LAYOUTS[tensor.layout]
        given = np.asarray(state[tensor.key])
        if tensor.layout == "no_bias" and np.any(given):
            raise ValueError(
                f"`weights` must fit the network: {tensor.key} of {origin} is "
                "not zero, and the network has use_position_bias=False."
            )
        parts = to_ours(given, tensor)
        for name, part in zip(tensor.names, parts, strict=True):
            arrays[name] = np.array(part, np.float32, order="C")
    return arrays


def to_timm(
    tensors: tuple[TimmTensor, ...],
    arrays: Mapping[str, np.ndarray],
    origin: str,
) -> dict[str, np.ndarray]:
    """Converts all our weights of a network to a state dict of timm.

    Args:
        tensors: what it is to hold, see `timm_tensors`.
        arrays: by the names of `named_weights`.
        origin: where they are from, for messages.

    Returns:
        Arrays by timm's names, in timm's order.

    Raises:
        ValueError: if anything is missing, unexpected or of another shape.
    """
    names = [name for tensor in tensors for name in tensor.names]
    check_fit(dict.fromkeys(names), arrays, _NETWORK, origin)
    state = {}
    for tensor in tensors:
        _, to_theirs = _LAYOUTS[tensor.layout]
        given = [np.asarray(arrays[name]) for name in tensor.names]
        try:
            state[tensor.key] = np.array(to_theirs(given, tensor), order="C")
        except ValueError as error:  # Another number of axes.
            raise ValueError(
                f"`weights` must fit the network. {origin} has {tensor.names} "
                f"of shapes {[array.shape for array in given]}: {error}."
            ) from error
    check_state(tensors, state, origin)
    return state


def _tensors(spec, classes, channels, image_size) -> Iterator[TimmTensor]:
    inputs, count = channels, len(spec.stem_filters)
    size, window = image_size, spec.stem_kernel_size
    for i, filters in enumerate(spec.stem_filters, start=1):
        theirs = f"stem.conv{i}"
        if count == 1 and not spec.stem_pool:
            theirs = "stem"
        ours = f"stem_conv{i}"
        yield from _conv_norm(theirs, ours, inputs, filters, window)
        inputs = filters
    if size is not None:
        for strides in (*spec.stem_strides, 2 if spec.stem_pool else 1):
            size = -(-size // strides)
    rows = zip(spec.stages, spec.widths, spec.strides, strict=True)
    for stage, (letters, width, strides) in enumerate(rows):
        for block, letter in enumerate(letters):
            names = (
                f"stages.{stage}.{block}",
                f"stage{stage + 2}_block{block + 1}",
            )
            stride = strides if block == 0 else 1
            yield from _block(names, letter, inputs, width, stride, spec, size)
            inputs = spec.expansion * width
            size = None if size is None else -(-size // stride)
    yield TimmTensor(
        "head.fc.weight", (classes, inputs), ("predictions/kernel",), "dense"
    )
    yield TimmTensor("head.fc.bias", (classes,), ("predictions/bias",))


def _block(names, letter, inputs, width, stride, spec, size):
    """A residual block; `names` are theirs and ours."""
    theirs, ours = names
    filters = spec.expansion * width
    if stride > 1 or inputs != filters:
        key = f"{theirs}.shortcut"
        if spec.shortcut == "pool":
            key += ".conv"  # Next to the pooling.
        yield from _conv_norm(key, f"{ours}_shortcut", inputs, filters)
    yield from _conv_norm(f"{theirs}.conv1_1x1", f"{ours}_conv1", inputs, width)
    if letter == "C":
        yield from _conv_norm(
            f"{theirs}.conv2_kxk", f"{ours}_conv2", width, width, 3
        )
    else:
        yield from _lambda(
            f"{theirs}.self_attn", f"{ours}_lambda", width, spec, size
        )
        yield from _norm(f"{theirs}.post_attn", f"{ours}_lambda_norm", width)
    yield from _conv_norm(
        f"{theirs}.conv3_1x1", f"{ours}_conv3", width, filters
    )


def _conv_norm(theirs, ours, inputs, filters, window=1):
    shape = (filters, inputs, window, window)
    yield TimmTensor(
        f"{theirs}.conv.weight", shape, (f"{ours}/kernel",), "conv"
    )
    yield from _norm(f"{theirs}.bn", f"{ours}_norm", filters)


def _norm(theirs, ours, channels):
    for key, name in _NORM:
        yield TimmTensor(f"{theirs}.{key}", (channels,), (f"{ours}/{name}",))
    yield TimmTensor(f"{theirs}.num_batches_tracked", (), (), "counter")


def _lambda(theirs, ours, width, spec, size):
    """A lambda layer on a map of a height and width, None for any."""
    queries, values = spec.num_heads * spec.key_dim, width // spec.num_heads
    table = f"{ours}/position_embedding/embeddings"
    if spec.scope is None:
        entries = None if size is None else 2 * size - 1
        shape = (entries, entries, spec.key_dim)
        yield TimmTensor(f"{theirs}.pos_emb", shape, (table,), "pos_emb")
    yield TimmTensor(
        f"{theirs}.qkv.weight",
        (queries + spec.key_dim + values, width, 1, 1),
        tuple(f"{ours}/{part}/kernel" for part in ("query", "key", "value")),
        "qkv",
        (queries, spec.key_dim, values),
    )
    yield from _norm(f"{theirs}.norm_q", f"{ours}/query_norm", queries)
    yield from _norm(f"{theirs}.norm_v", f"{ours}/value_norm", values)
    if spec.scope is not None:
        scope = spec.scope if isinstance(spec.scope, int) else spec.scope[0]
        shape = (spec.key_dim, 1, scope, scope, 1)
        key = f"{theirs}.conv_lambda"
        yield TimmTensor(f"{key}.weight", shape, (table,), "conv_lambda")
        names, layout = (), "no_bias"
        if spec.use_position_bias:
            names, layout = (f"{ours}/position_bias",), "same"
        yield TimmTensor(f"{key}.bias", (spec.key_dim,), names, layout)


def _split_qkv(array, tensor):
    """(outputs, inputs, 1, 1) -> (inputs, units) of each projection."""
    ends = np.cumsum(tensor.units)[:-1]
    return np.split(array[:, :, 0, 0].T, ends, axis=1)


def _join_qkv(arrays, tensor):
    return np.concatenate(arrays, axis=1).T[:, :, None, None]


def _key_dim_zeros(arrays, tensor):
    return np.zeros(tensor.shape, np.float32)


# Theirs to ours, a list of arrays; and back.
_LAYOUTS = {
    "same": (lambda a, _: [a], lambda a, _: a[0]),
    "dense": (lambda a, _: [a.T], lambda a, _: a[0].T),
    # (outputs, inputs, height, width): ours is (height, width, inputs, outputs)
    "conv": (
        lambda a, _: [a.transpose(2, 3, 1, 0)],
        lambda a, _: a[0].transpose(3, 2, 0, 1),
    ),
    "qkv": (_split_qkv, _join_qkv),
    # A 3-D convolution over (height, width, value depth): (key_dim, 1, r, r,
    # 1). Ours is (r, r, key_dim, intra_depth).
    "conv_lambda": (
        lambda a, _: [a[:, 0, :, :, 0].transpose(1, 2, 0)[..., None]],
        lambda a, _: a[0][..., 0].transpose(2, 0, 1)[:, None, :, :, None],
    ),
    # (entries, entries, key_dim): ours has the intra-depth, too.
    "pos_emb": (lambda a, _: [a[..., None]], lambda a, _: a[0][..., 0]),
    "no_bias": (lambda *_: [], _key_dim_zeros),
    "counter": (lambda *_: [], lambda *_: np.zeros((), np.int64)),
}


def check_state(
    tensors: tuple[TimmTensor, ...],
    state: Mapping[str, np.ndarray],
    origin: str,
) -> None:
    """Raises a ValueError that says how a state dict is not as listed."""
    shapes = {tensor.key: tensor.shape for tensor in tensors}
    check_fit(shapes, state, _NETWORK, origin)
    for tensor in tensors:
        array = np.asarray(state[tensor.key])
        if tensor.layout == "pos_emb" and not all(
            size % 2 for size in array.shape[:2]
        ):
            raise ValueError(
                f"`weights` must fit the network. {origin} has {tensor.key} of "
                f"shape {array.shape}, whose first sizes must be odd."
            )
        is_float = np.issubdtype(array.dtype, np.floating)
        if is_float == (tensor.layout == "counter"):
            raise ValueError(
                f"`weights` must be floats, and counters integers. {origin} "
                f"has {tensor.key} of {array.dtype}."
            )
