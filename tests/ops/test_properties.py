"""What lambda layers are, each property one sentence of the paper.

None of these needs the reference: they hold for the right function whatever
its numbers, and each fails for some layer that only looks right.
"""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from tests.support import checks
from tests.support.random_layers import built
from tests.support.random_layers import copy_weights
from tests.support.random_layers import normal

pytestmark = pytest.mark.once

_SIZE = {"filters": 10, "num_heads": 2, "key_dim": 3}
_PLAIN = {**_SIZE, "use_batch_norm": False}


# Every algorithm, and attention.
every_form = pytest.mark.parametrize(
    ("layer", "arguments"),
    [
        *(
            (layers.LambdaLayer, {"implementation": name})
            for name in ops.implementations(2)
        ),
        (layers.RelativeAttention, {}),
    ],
)


@every_form
def test_scope_that_covers_the_map_is_global(layer, arguments, rng):
    x = normal(rng, 2, 3, 5, 7)
    everywhere = built(x, layer, **_SIZE)
    window = layer(**_SIZE, scope=(5, 9), **arguments)
    window(x)
    copy_weights(everywhere, window)
    checks.assert_close(window(x), everywhere(x), 1e-5)


def test_far_embeddings_of_zero_are_a_scope(rng):
    x = normal(rng, 2, 5, 7, 6)
    local = built(x, **_SIZE, scope=(3, 5))
    everywhere = layers.LambdaLayer(**_SIZE)
    everywhere(x)
    table = np.zeros([9, 13, 3, 1])
    near = checks.raw(local.position_embedding.embeddings).numpy()
    table[3:6, 4:9] = near
    copy_weights(local, everywhere, embeddings=table)
    checks.assert_close(everywhere(x), local(x), 1e-5)


def test_softmax_ignores_a_constant_in_a_key_channel(rng):
    x = normal(rng, 2, 11, 5)
    x[..., 0] = 1  # a constant channel, so the kernel's first row adds to all
    for normalization, changes in (("softmax", False), (None, True)):
        layer = built(x, **_SIZE, key_normalization=normalization)
        before = layer(x)
        kernel = checks.raw(layer.key.kernel).numpy()
        kernel[0, 1] += 3
        layer.key.kernel.assign(kernel)
        if changes:
            checks.assert_far(layer(x), before)
        else:
            checks.assert_close(layer(x), before, 1e-5)


@pytest.mark.parametrize(
    ("layer", "arguments"),
    [
        (layers.LambdaLayer, {"use_position": False}),
        (layers.RelativeAttention, {"position_embedding": None}),
    ],
)
def test_content_ignores_the_order_of_the_context(layer, arguments, rng):
    x, context = normal(rng, 2, 3, 5, 7), normal(rng, 2, 13, 6)
    layer = built(x, layer, **_SIZE, **arguments, call={"context": context})
    order = rng.permutation(13)
    expected = layer(x, context=context)
    checks.assert_close(layer(x, context=context[:, order]), expected, 1e-5)


def test_content_commutes_with_a_permutation_of_pixels(rng):
    x = normal(rng, 2, 3, 5, 7)
    order = rng.permutation(15)

    def permute(image):
        image = np.asarray(image)
        rows = image.reshape(2, 15, -1)[:, order]
        return rows.reshape(image.shape)

    content = built(x, **_SIZE, use_position=False)
    checks.assert_close(content(permute(x)), permute(content(x)), 1e-5)
    # With positions it must not.
    both = built(x, **_SIZE)
    checks.assert_far(both(permute(x)), permute(both(x)))


def test_output_is_linear_in_queries_and_in_values(rng):
    x = normal(rng, 2, 3, 5, 7)
    layer = built(x, **_PLAIN, intra_depth=2)
    for dense in (layer.query, layer.value):
        kernel = checks.raw(dense.kernel).numpy()
        other = rng.normal(size=kernel.shape)

        def output(kernel, dense=dense):
            dense.kernel.assign(kernel)
            return layer(x).numpy()

        combined = output(2 * kernel - 3 * other)
        separate = 2 * output(kernel) - 3 * output(other)
        checks.assert_close(combined, separate, 1e-5)
        dense.kernel.assign(kernel)


def of_two_layers(x, layer, part, **arguments):
    """Outputs of two layers with parts of the weights of one."""
    arguments = {"key_dim": 3, "use_batch_norm": False, "scope": 3} | arguments
    single, outputs = layers.LambdaLayer(**arguments), []
    single(x)
    weights = checks.reference_weights(layer)
    for index in range(2):
        parts = {
            name: part(name, checks.raw(weight).numpy(), index)
            for name, weight in weights.items()
        }
        copy_weights(layer, single, **parts)
        outputs.append(single(x))
    return outputs


def test_heads_share_one_lambda(rng):
    def part(name, weight, head):
        return np.split(weight, 2, axis=-1)[head] if name == "query" else weight

    x = normal(rng, 2, 3, 5, 7)
    layer = built(x, **_PLAIN, scope=3)
    outputs = of_two_layers(x, layer, part, filters=5, num_heads=1)
    checks.assert_close(tf.concat(outputs, -1), layer(x), 1e-5)


def test_multi_head_is_one_layer_per_head(rng):
    def part(name, weight, head):
        if name == "embeddings":
            return weight[:, :, head]
        return np.split(weight, 2, axis=-1)[head]

    x = normal(rng, 2, 3, 5, 7)
    layer = built(x, **_PLAIN, scope=3, multi_head=True, intra_depth=2)
    outputs = of_two_layers(
        x, layer, part, filters=5, num_heads=1, intra_depth=2
    )
    checks.assert_close(tf.concat(outputs, -1), layer(x), 1e-5)


def test_intra_depth_is_a_sum_of_layers(rng):
    def part(name, weight, depth):
        if name == "embeddings":
            return weight[..., depth : depth + 1]
        return weight if name == "query" else weight[:, depth::2]

    x = normal(rng, 2, 3, 5, 7)
    layer = built(x, **_PLAIN, scope=3, intra_depth=2)
    outputs = of_two_layers(x, layer, part, filters=10, num_heads=2)
    checks.assert_close(tf.add_n(outputs), layer(x), 1e-5)


@every_form
def test_shifted_image_shifts_the_output(layer, arguments, rng):
    x = normal(rng, 2, 9, 11, 7)
    if layer is layers.LambdaLayer:  # Content lambdas see the whole map.
        arguments = {**arguments, "use_content": False}
    layer = built(x, layer, **_SIZE, scope=(3, 5), **arguments)
    shifted = np.roll(x, (2, 3), axis=(1, 2))
    interior = np.roll(layer(x), (2, 3), axis=(1, 2))[:, 3:-1, 5:-2]
    checks.assert_close(layer(shifted)[:, 3:-1, 5:-2], interior, 1e-5)
    checks.assert_far(layer(x)[:, 3:-1, 5:-2], interior)


@pytest.mark.parametrize("implementation", ops.implementations(2))
def test_shifted_object_shifts_the_global_output(implementation, rng):
    x = np.zeros([1, 7, 9, 5], np.float32)
    x[:, 1:4, 2:5] = rng.normal(size=[1, 3, 3, 5])
    layer = built(
        x,
        **_PLAIN,
        use_content=False,
        implementation=implementation,
    )
    expected = np.roll(layer(x), (2, 3), axis=(1, 2))
    shifted = np.roll(x, (2, 3), axis=(1, 2))
    checks.assert_close(layer(shifted), expected, 1e-5)
    assert np.all(expected[:, 0] == 0)  # no query, no output


def test_inference_does_not_see_batch_mates(rng):
    x = normal(rng, 4, 5, 7, 6)
    layer = built(x, **_SIZE)
    checks.assert_close(layer(x[:1]), layer(x)[:1], 1e-6)


@pytest.mark.slow
def test_causal_is_a_triangular_mask(rng):
    x = normal(rng, 2, 11, 5)
    triangle = np.tril(np.ones([11, 11], int))
    for normalization in ("softmax", "l2", None):
        for scope in (None, 3):
            arguments = {
                **_SIZE,
                "key_normalization": normalization,
                "scope": scope,
                "use_batch_norm": True,
            }
            causal = built(x, **arguments, causal=True)
            masked = layers.LambdaLayer(**arguments)
            masked(x)
            copy_weights(causal, masked)
            checks.assert_close(
                masked(x, attention_mask=triangle), causal(x), 1e-5
            )


@pytest.mark.slow
def test_mask_of_ones_is_no_mask(rng):
    x = normal(rng, 2, 3, 5, 7)
    layer = built(x, **_SIZE)
    ones = np.ones([15, 15])
    for mask in (ones, ones.astype(bool), ones.astype(int), ones.tolist()):
        checks.assert_close(layer(x, attention_mask=mask), layer(x), 1e-5)
    padding = np.ones([2, 3, 5], bool)
    checks.assert_close(layer(x, context_mask=padding), layer(x), 1e-5)


def test_mask_kinds_agree(rng):
    x = normal(rng, 2, 3, 5, 7)
    layer = built(x, **_SIZE, scope=3)
    mask = rng.integers(0, 2, [15, 15])
    real = rng.integers(0, 2, [2, 15])
    expected = layer(x, attention_mask=mask, context_mask=real)
    checks.assert_far(layer(x, attention_mask=mask), expected)
    checks.assert_far(layer(x, context_mask=real), expected)
    for kind in (bool, np.float32):
        output = layer(
            x,
            attention_mask=tf.constant(mask.astype(kind)),
            context_mask=tf.constant(real.reshape(2, 3, 5).astype(kind)),
        )
        checks.assert_close(output, expected, 1e-6)
    # Padding is a mask that is the same for every query of an example.
    for example in range(2):
        joint = mask * real[example]
        checks.assert_close(
            layer(x, attention_mask=joint)[example], expected[example], 1e-5
        )


def test_padded_sequence_equals_the_short_one(rng):
    x = normal(rng, 1, 11, 5)
    for arguments in ({"scope": 5}, {"causal": True, "scope": 3}):
        layer = built(x, **_SIZE, **arguments)
        real = (np.arange(11) < 7)[None]
        output = layer(x, context_mask=real)[:, :7]
        checks.assert_close(output, layer(x[:, :7]), 1e-5)


def test_sequence_is_an_image_of_one_row(rng):
    x = normal(rng, 2, 11, 5)
    for scope in (None, 3):
        sequence = built(x, **_SIZE, scope=scope)
        image = layers.LambdaLayer(
            **_SIZE, scope=None if scope is None else (1, scope)
        )
        image(x[:, None])
        table = checks.raw(sequence.position_embedding.embeddings)
        copy_weights(sequence, image, embeddings=table[None])
        checks.assert_close(image(x[:, None])[:, 0], sequence(x), 1e-5)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize(
    "window",
    [(3, 1, 1), (3, 2, 1), (5, 2, 1), (5, 3, 1), (3, 1, 2), (1, 2, 1)],
)
def test_convolution_aligns_with_keras(window, padding, rng):
    # One head, one key channel that is always 1: the position lambda is a
    # plain convolution of the values, so Keras' own can be compared.
    kernel, stride, dilation = window
    x = normal(rng, 2, 9, 6, 3)  # an odd and an even size
    x[..., 0] = 1
    arguments = {
        "kernel_size": kernel,
        "strides": stride,
        "dilation_rate": dilation,
        "padding": padding,
    }
    layer = built(
        x,
        layers.LambdaConv,
        filters=2,
        num_heads=1,
        key_dim=1,
        use_content=False,
        use_batch_norm=False,
        **arguments,
    )
    layer.query.kernel.assign([[1.0], [0.0], [0.0]])
    values = x @ checks.raw(layer.value.kernel).numpy()  # [b, h, w, 2]
    table = checks.raw(layer.position_embedding.embeddings).numpy()[..., 0]
    keras = tf.keras.layers.Conv2D(1, use_bias=False, **arguments)
    channels = [
        _keras_convolution(keras, table[..., None], values[..., i : i + 1])
        for i in range(2)
    ]
    checks.assert_close(layer(x), np.concatenate(channels, -1), 1e-5)


def _keras_convolution(layer, kernel, x):
    if not layer.built:
        layer.build((None, None, None, 1))
    layer.kernel.assign(kernel.reshape(layer.kernel.shape))
    return layer(x).numpy()


def test_strided_convolution_takes_every_other_output(rng):
    x = normal(rng, 2, 9, 7, 5)  # odd sizes: SAME starts at 0
    full = built(x, layers.LambdaConv, **_SIZE, kernel_size=5)
    strided = layers.LambdaConv(**_SIZE, kernel_size=5, strides=2)
    strided(x)
    copy_weights(full, strided)
    checks.assert_close(strided(x), full(x)[:, ::2, ::2], 1e-5)
