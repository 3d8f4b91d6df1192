"""Lambda layers against the reference.

Every implementation, over randomly drawn layers and shapes, forward and with
all gradients, in float64 where a real error cannot hide behind rounding, and
in float32 as used.
"""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from lambdanet_tf import layers
from lambdanet_tf import ops
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from tests.support import cases
from tests.support import checks
from tests.support.random_layers import built
from tests.support.random_layers import normal

pytestmark = pytest.mark.every_lane
_ONCE = pytest.mark.once_a_version

SIZES = {1: (2, 3, 5, 7, 11), 2: (2, 3, 5), 3: (1, 2, 3)}


def grids(rank):
    return strategies.tuples(*[strategies.sampled_from(SIZES[rank])] * rank)


def odd(*values):
    return strategies.sampled_from(values)


@strategies.composite
def common_arguments(draw):
    num_heads = draw(odd(1, 2, 3))
    return {
        "filters": num_heads * draw(odd(1, 2, 5)),
        "num_heads": num_heads,
        "key_dim": draw(odd(1, 3, 7)),
        "intra_depth": draw(odd(1, 1, 2)),
        "multi_head": draw(strategies.booleans()),
        "use_position_bias": draw(strategies.booleans()),
        "key_normalization": draw(odd("softmax", "softmax", "l2", None)),
        "query_normalization": draw(odd(None, "softmax")),
        "use_batch_norm": draw(strategies.booleans()),
        "norm_epsilon": draw(odd(1e-3, 0.1)),
    }


def set_parts(arguments, part):
    """A layer of "both" parts, or of one of them alone."""
    arguments["use_content"] = part != "position"
    arguments["use_position"] = part != "content"
    arguments["use_position_bias"] &= part != "content"


@strategies.composite
def drawn_layers(draw, rank):
    """(arguments of a LambdaLayer, shapes and masks of a call, training)."""
    arguments = draw(common_arguments())
    grid = draw(grids(rank))
    positions = int(np.prod(grid))
    rng = np.random.default_rng(draw(strategies.integers(0, 99)))
    batch, channels = draw(odd(1, 2, 3)), draw(odd(2, 5))
    part = draw(odd("both", "both", "content", "position"))
    set_parts(arguments, part)
    scopes = strategies.tuples(*[odd(1, 3, 5, 7)] * rank)
    arguments["scope"] = draw(strategies.none() | odd(3, 5) | scopes)
    call = {"inputs": rng.normal(size=[batch, *grid, channels])}

    shape = grid
    context = draw(odd(None, None, "grid", "other"))
    explicit = part != "content" and draw(odd(False, False, True))
    if context == "other" and (part == "content" or explicit):
        shape = draw(grids(draw(odd(1, 2, 3))))
    if context is not None:
        channels = draw(odd(2, 3))
        call["context"] = rng.normal(size=[batch, *shape, channels])
    num_context = int(np.prod(shape))
    if explicit:
        arguments |= {"position_embedding": "explicit", "scope": None}
        heads = [arguments["num_heads"]] if arguments["multi_head"] else []
        depth = arguments["intra_depth"]
        call["embeddings"] = rng.normal(
            size=[batch] * draw(strategies.booleans())
            + [positions, num_context, *heads, arguments["key_dim"]]
            + [depth] * (depth > 1)
        )
    if rank == 1 and shape == grid:
        arguments["causal"] = draw(strategies.booleans())
    masked = draw(odd(None, None, "mask", "padding", "both"))
    if masked in ("mask", "both"):
        examples = [batch] * draw(strategies.booleans())
        call["attention_mask"] = rng.integers(
            0, 2, [*examples, positions, num_context]
        )
    training = draw(strategies.booleans())
    if masked in ("padding", "both"):
        real = rng.integers(0, 2, [batch, num_context]).astype(bool)
        if training:  # statistics of nothing are not defined
            real[0, 0] = True
        if draw(strategies.booleans()):
            real = real.reshape([batch, *shape])
        call["context_mask"] = real
    return arguments, call, training


@strategies.composite
def drawn_convolutions(draw):
    """(arguments of a LambdaConv, input, training)."""
    arguments = draw(common_arguments())
    rank = draw(odd(1, 2, 3))
    grid = draw(grids(rank))
    part = draw(odd("both", "content", "position", "position"))
    set_parts(arguments, part)
    arguments["padding"] = draw(odd("same", "valid", "same", "causal"))
    if arguments["padding"] == "causal" and rank > 1:
        arguments["padding"] = "same"
    reach = [7] * rank
    kernel = strategies.tuples(*[odd(1, 3, 5)] * rank)
    step = strategies.tuples(*[odd(1, 2, 3)] * rank)
    kernel, step = draw(kernel), draw(step)
    strided = draw(strategies.booleans())
    arguments["strides" if strided else "dilation_rate"] = step
    if arguments["padding"] == "valid":
        dilation = (1,) * rank if strided else step
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        grid = tuple(max(size, r) for size, r in zip(grid, reach, strict=True))
    hypothesis.assume(np.prod(grid) < 200)
    arguments["kernel_size"] = kernel
    seed = draw(strategies.integers(0, 99))
    batch, channels = draw(odd(1, 2)), draw(odd(2, 5))
    inputs = np.random.default_rng(seed).normal(size=[batch, *grid, channels])
    return arguments, {"inputs": inputs}, draw(strategies.booleans())


def agree(layer_type, drawn, implementation, dtype, jointly):
    arguments, call, training = drawn
    rng = np.random.default_rng(7)
    layer = layer_type(**arguments, implementation=implementation, dtype=dtype)
    call = {
        name: value if "mask" in name else value.astype(dtype)
        for name, value in call.items()
    }
    layer(**{name: tf.constant(value) for name, value in call.items()})
    checks.randomize(layer, rng)
    checks.assert_equals_oracle(layer, call, rng, training, jointly)


few = hypothesis.settings(
    max_examples=15,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.data_too_large,
    ],
)


@pytest.mark.representatives(4)
@pytest.mark.once
@cases.every_implementation
@few
@hypothesis.given(
    drawn=strategies.sampled_from([1, 2, 3]).flatmap(drawn_layers)
)
def test_any_layer_equals_the_reference(implementation, drawn):
    agree(layers.LambdaLayer, drawn, implementation, "float64", jointly=True)


@pytest.mark.slow
@pytest.mark.representatives(3)
@pytest.mark.once
@cases.every_implementation
@few
@hypothesis.given(drawn=drawn_convolutions())
def test_any_convolution_equals_the_reference(implementation, drawn):
    agree(layers.LambdaConv, drawn, implementation, "float64", jointly=True)


_SMALL = {"filters": 22, "num_heads": 2, "key_dim": 3}
_JOINT, _NO_TABLE = ({"position_embedding": kind} for kind in ("joint", None))

_LINE, _MAP, _VOLUME = (13,), (5, 7), (2, 3, 5)
# (layer, arguments, grid): one of each kind, in float32, every gradient by
# itself.
SINGLE_PRECISION = {
    "global": (LambdaLayer, {}, _MAP),
    "scope": (LambdaLayer, {"scope": (3, 5), "intra_depth": 2}, _MAP),
    "multi_head": (LambdaLayer, {"multi_head": True, "scope": 5}, _MAP),
    "l2": (LambdaLayer, {"key_normalization": "l2"}, _LINE),
    "causal": (LambdaLayer, {"causal": True}, _LINE),
    "volume": (LambdaLayer, {"scope": 3}, _VOLUME),
    "attention": (RelativeAttention, {}, _MAP),
    "attention_scope": (RelativeAttention, {"scope": (3, 5)}, _MAP),
    "attention_joint": (RelativeAttention, {"scope": 3, **_JOINT}, _MAP),
    "attention_axis": (RelativeAttention, {"axis": 1}, _MAP),
    "attention_content": (RelativeAttention, _NO_TABLE, _LINE),
    "attention_causal": (RelativeAttention, {"causal": True}, _LINE),
    "attention_volume": (RelativeAttention, {"scope": 3}, _VOLUME),
}


# Every kind by the algorithm that is chosen; of each algorithm what rounds:
# its sums over a line and over a map.
@pytest.mark.parametrize(
    ("kind", "given", "training"),
    [
        *((kind, {}, True) for kind in SINGLE_PRECISION),
        ("global", {}, False),
        ("scope", {}, False),
        *(
            pytest.param(kind, {"implementation": name}, True, marks=_ONCE)
            for kind, rank in (("scope", 2), ("causal", 1))
            for name in ops.implementations(rank)[1:]
        ),
    ],
    ids=str,
)
def test_single_precision(kind, given, training, rng):
    layer_type, arguments, grid = SINGLE_PRECISION[kind]
    x = normal(rng, 2, *grid, 11)
    layer = built(x, layer_type, seed=3, **_SMALL, **arguments, **given)
    checks.assert_equals_oracle(layer, {"inputs": x}, rng, training)


# Longer than one of the pieces that a sequence is cut into; `ops` has tests of
# the lengths around their size.
@pytest.mark.slow
@pytest.mark.parametrize("normalization", ops.KEY_NORMALIZATIONS)
def test_long_causal_sequences(normalization, rng):
    real = rng.uniform(size=[2, 70]) < 0.7
    real[0, :40] = False  # nothing permitted for longer than one piece
    call = {"inputs": rng.normal(size=[2, 70, 5]), "context_mask": real}
    layer = LambdaLayer(
        **_SMALL,
        causal=True,
        scope=5,
        key_normalization=normalization,
        intra_depth=2,
        dtype="float64",
    )
    layer(**call)
    checks.randomize(layer, rng)
    checks.assert_equals_oracle(layer, call, rng, jointly=True)


@pytest.mark.slow
def test_causal_memory_is_linear_in_the_length():
    layer = LambdaLayer(
        filters=2, num_heads=1, key_dim=2, causal=True, use_position=False
    )
    layer.build((1, None, 2))
    small, large = (
        checks.largest_tensor(layer, [1, length, 2]) for length in (256, 2048)
    )
    assert large <= 9 * small
    assert large < 2048**2 / 4


_LENGTHS, _GRIDS = [(1,), (16,), (17,), (70,)], [(5, 6), (1, 2), (9, 3)]
_PAST = {"causal": True, "scope": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer_type", "arguments", "grids"),
    [
        *(
            (LambdaLayer, {**_PAST, "key_normalization": name}, _LENGTHS)
            for name in ops.KEY_NORMALIZATIONS
        ),
        (RelativeAttention, {"causal": True, "scope": 5}, _LENGTHS),
        (RelativeAttention, {"causal": True, **_NO_TABLE}, _LENGTHS),
        (RelativeAttention, {"scope": (3, 5)}, _GRIDS),
        (RelativeAttention, {"scope": 3, **_JOINT}, _GRIDS),
        (RelativeAttention, {"scope": 3, **_NO_TABLE}, _GRIDS),
        (RelativeAttention, {"scope": 5, "axis": 1}, _GRIDS),
        (RelativeAttention, _NO_TABLE, _GRIDS),
    ],
)
@pytest.mark.representatives(3)
def test_unknown_sizes(layer_type, arguments, grids, rng):
    inputs = tf.keras.Input([*(None for _ in grids[0]), 5])
    layer = layer_type(**_SMALL, **arguments)
    model = tf.keras.Model(inputs, layer(inputs))
    checks.randomize(model, rng)
    call = tf.function(model)
    for grid in grids:
        x = tf.constant(normal(rng, 2, *grid, 5))
        expected = checks.oracle_output(layer, {"inputs": x})
        checks.assert_close(call(x), expected, 1e-5)
    padded = {"inputs": x, "context_mask": rng.uniform(size=[2, *grid]) < 0.7}
    expected = checks.oracle_output(layer, padded)
    output = tf.function(layer)(**padded)
    checks.assert_close(output, expected, 1e-5)
