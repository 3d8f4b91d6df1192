"""Networks and layers at other sizes than those they were built for."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.models import sizes
from tests.support import checks
from tests.support import networks

KERAS = tf.keras.layers


def images(rng, *size):
    return rng.normal(size=(2, *size, 3)).astype("float32")


def through(x, *steps):
    for step in steps:
        x = step(x)
    return x


def network(size, seed=0):
    """A classifier with global lambda layers that share a table, and more."""
    tf.keras.utils.set_random_seed(seed)
    table = layers.RelativePositionEmbedding(key_dim=4, name="table")
    arguments = {"num_heads": 2, "key_dim": 4, "position_embedding": table}
    inputs = tf.keras.Input((*size, 3))
    outputs = through(
        inputs,
        KERAS.Conv2D(6, 3, padding="same", name="stem"),
        layers.LambdaLayer(name="first", **arguments),
        layers.LambdaLayer(name="second", **arguments),
        layers.LambdaLayer(num_heads=2, scope=3, name="local"),
        layers.RelativeAttention(num_heads=2, name="attention"),
        KERAS.GlobalAveragePooling2D(),
        KERAS.Dense(5, name="predictions"),
    )
    return tf.keras.Model(inputs, outputs)


LAYERS = {
    "lambda": lambda: layers.LambdaLayer(num_heads=2, key_dim=3),
    "multi_head": lambda: layers.LambdaLayer(
        num_heads=2, key_dim=3, multi_head=True, intra_depth=2
    ),
    "attention": lambda: layers.RelativeAttention(num_heads=2, key_dim=3),
    "joint": lambda: layers.RelativeAttention(
        num_heads=2, position_embedding="joint"
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_called_on_smaller_inputs_as_it_is(name, rng):
    layer = LAYERS[name]()
    layer.build((None, 9, 7, 6))
    checks.randomize(layer, rng)
    x = rng.normal(size=(2, 5, 6, 6)).astype("float32")
    smaller = models.resize_embeddings(layer, (5, 6, 6))
    assert smaller.count_params() < layer.count_params()
    checks.assert_close(layer(x), smaller(x), 2e-6)
    checks.assert_close(
        layer(x), checks.oracle_output(smaller, {"inputs": x}), 1e-5
    )


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_refuses_larger_inputs_and_says_what_to_do(name, rng):
    layer = LAYERS[name]()
    layer.build((None, 5, 4, 6))
    checks.randomize(layer, rng)
    x = rng.normal(size=(2, 9, 7, 6)).astype("float32")
    with pytest.raises(ValueError, match="models.resize_embeddings"):
        layer(x)
    larger = models.resize_embeddings(layer, x.shape[1:])
    assert larger(x).shape == x.shape
    # The ends of a table stay its ends, and so does the center.
    (weight, axes), *_ = sizes.global_tables(larger).values()
    (before, _), *_ = sizes.global_tables(layer).values()
    ends = [
        tf.gather(table, [0, -1 % table.shape[0]]) for table in (before, weight)
    ]
    if axes == 1:
        np.testing.assert_allclose(*ends, atol=1e-6)
    center = tuple(n // 2 for n in weight.shape[:axes])
    start = tuple(n // 2 for n in before.shape[:axes])
    np.testing.assert_allclose(
        np.asarray(weight)[center], np.asarray(before)[start], atol=1e-6
    )


@pytest.mark.slow
def test_a_network_of_another_size_is_its_copy(rng):
    model = network((9, 8))
    smaller = models.resize_embeddings(model, (6, 5, 3))
    x = images(rng, 6, 5)
    # Each layer takes smaller inputs as it is.
    checks.assert_close(smaller(x), through(x, *model.layers[1:]), 5e-6)
    assert smaller.get_layer("first").position_embedding is (
        smaller.get_layer("second").position_embedding
    )
    larger = models.resize_embeddings(model, (12, 16, 3))
    assert larger(images(rng, 12, 16)).shape == (2, 5)
    own, theirs = (models.named_weights(m) for m in (model, larger))
    assert own.keys() == theirs.keys()
    for name, weight in own.items():
        assert weight is not theirs[name]
    tables = {*sizes.global_tables(model)}
    assert networks.same_weights(model, larger) == own.keys() - tables
    assert tuple(theirs["table/embeddings"].shape) == (23, 31, 4, 1)


@pytest.mark.slow
def test_files_are_loaded_across_sizes(tmp_path, recwarn):
    model, path = network((6, 7)), tmp_path / "weights.npz"
    models.save_weights(model, path)
    smaller = network((5, 4), seed=1)
    assert models.load_weights(smaller, path) == ()
    table = models.named_weights(model)["table/embeddings"]
    np.testing.assert_array_equal(
        models.named_weights(smaller)["table/embeddings"],
        np.asarray(table)[1:-1, 3:-3],
    )
    assert not recwarn.list
    larger = network((9, 7), seed=1)
    with pytest.warns(UserWarning, match="interpolated"):
        models.load_weights(larger, path)
    copy = models.resize_embeddings(model, (9, 7, 3))
    networks.assert_weights(larger, copy)


def test_tokens_keep_their_vocabulary():
    tokens = tf.keras.Input((8,), dtype="int32")
    x = KERAS.Embedding(11, 4)(tokens)
    x = layers.RelativeAttention(num_heads=1, causal=True)(x)
    model = tf.keras.Model(tokens, x)
    longer = models.resize_embeddings(model, (20,))
    assert longer(tf.zeros([1, 20], tf.int32)).shape == (1, 20, 4)
    np.testing.assert_array_equal(
        longer.get_weights()[0], model.get_weights()[0]
    )


@pytest.mark.parametrize("structure", [lambda x: [x], lambda x: {"x": x}])
def test_the_input_may_be_in_a_list_or_a_dictionary(structure):
    inputs = tf.keras.Input((6, 3), name="x")
    x = layers.LambdaLayer(4, num_heads=2, key_dim=3)(inputs)
    model = tf.keras.Model(structure(inputs), x)
    assert models.resize_embeddings(model, (5, 3)).output_shape == (None, 5, 4)
    assert analysis.analyze(model, 5, executed=False).image_shape == (5, 3)


def stripes(rng, size, count=64):
    """Noisy stripes, and whether they are upright."""
    labels = rng.integers(0, 2, count)
    phase = rng.integers(0, 2, [count, 1, 1])
    rows, columns = np.indices([size, size])
    lines = np.where(labels[:, None, None], columns, rows) + phase
    x = (lines // 2 % 2 - 0.5) + 0.5 * rng.normal(size=[count, size, size])
    return x[..., None].astype("float32"), labels


@pytest.mark.slow
def test_one_set_of_weights_trains_on_two_sizes(rng):
    tf.keras.utils.set_random_seed(0)
    parts = [
        layers.LambdaLayer(8, num_heads=2, key_dim=4, name="lambda"),
        KERAS.Activation("relu"),
        KERAS.GlobalAveragePooling2D(),
        KERAS.Dense(2),
    ]

    def at(size):
        inputs = tf.keras.Input((size, size, 1))
        return compiled(tf.keras.Model(inputs, through(inputs, *parts)))

    def compiled(model):
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        rate = tf.keras.optimizers.Adam(2e-2)
        model.compile(rate, loss, metrics=["accuracy"])
        return model

    trained = {size: at(size) for size in (12, 8)}  # the largest first
    table = trained[12].get_layer("lambda").position_embedding.embeddings
    before = np.asarray(table)
    for _ in range(30):
        for size, model in trained.items():
            model.train_on_batch(*stripes(rng, size))
    assert tuple(table.shape[:2]) == (23, 23)
    moved = np.abs(np.asarray(table) - before).max(axis=(2, 3)) > 0
    assert moved.all()  # the outer ones by the larger size
    tested = {**trained, 10: models.resize_embeddings(trained[12], (10, 10, 1))}
    # A larger one has interpolated tables, and is fine-tuned.
    larger = models.resize_embeddings(trained[12], (16, 16, 1))
    tested[16] = compiled(larger)
    for _ in range(15):
        larger.train_on_batch(*stripes(rng, 16))
    for size, model in tested.items():
        x, labels = stripes(rng, size, 256)
        predicted = np.argmax(model(x), axis=-1)
        assert np.mean(predicted == labels) > 0.9, size


@pytest.mark.slow
def test_models_inside_are_resized_too(rng):
    def nested(size, seed=0):
        tf.keras.utils.set_random_seed(seed)
        first = tf.keras.Sequential(
            [
                tf.keras.Input((*size, 3)),
                KERAS.Conv2D(6, 3, 2, padding="same", name="stem"),
            ],
            name="first_model",
        )
        half = tuple(-(-n // 2) for n in size)
        maps = tf.keras.Input((*half, 6))
        inside = layers.LambdaLayer(6, num_heads=2, name="inside")
        second = tf.keras.Model(maps, inside(maps), name="second_model")
        images = tf.keras.Input((*size, 3))
        outside = layers.LambdaLayer(6, num_heads=2, name="outside")
        pool = KERAS.GlobalAveragePooling2D()
        x = through(images, first, second, outside, pool)
        return tf.keras.Model(images, x)

    model = nested((12, 10))
    checks.randomize(model, rng)
    for size in ((6, 7), (17, 20)):
        copy = models.resize_embeddings(model, (*size, 3))
        fresh = nested(size, seed=1)
        shapes = [
            {k: tuple(w.shape) for k, w in models.named_weights(m).items()}
            for m in (copy, fresh)
        ]
        assert shapes[0] == shapes[1]
        assert copy(images(rng, *size)).shape == (2, 6)
    x = images(rng, 6, 7)
    stem = model.get_layer("first_model").layers[-1]
    inside = model.get_layer("second_model").get_layer("inside")
    expected = through(x, stem, inside, *model.layers[-2:])
    small = models.resize_embeddings(model, (6, 7, 3))
    checks.assert_close(small(x), expected, 5e-6)


@pytest.mark.once
@pytest.mark.skipif(not KERAS_3, reason="Keras 2 has no low-rank updates")
@pytest.mark.parametrize(
    "copied",
    [
        lambda model: models.resize_embeddings(model, (4, 4, 3)),
        lambda model: models.replace_layers(model, lambda *_: None),
    ],
    ids=["resized", "replaced"],
)
@pytest.mark.representatives(2)
def test_copies_have_the_low_rank_updates_and_train_them(copied, rng):
    inputs = tf.keras.Input((4, 4, 3))
    layer = layers.LambdaLayer(6, num_heads=2, key_dim=3)
    model = tf.keras.Model(inputs, KERAS.Dense(5)(layer(inputs)))
    for dense in (layer.query, layer.value, model.layers[-1]):
        dense.enable_lora(2, lora_alpha=3)
        dense.lora_kernel_b.assign(rng.normal(size=dense.lora_kernel_b.shape))
    copy = copied(model)
    x = images(rng, 4, 4)
    np.testing.assert_allclose(copy(x), model(x), rtol=1e-4, atol=1e-4)
    updates = [w.shape for w in model.trainable_weights]
    assert [w.shape for w in copy.trainable_weights] == updates
