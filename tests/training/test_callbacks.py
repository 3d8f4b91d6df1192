"""Compiling for `model.fit`, and averages beside Keras' own callbacks."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf import training
from lambdanet_tf.data.arrays import ArraySource
from lambdanet_tf.data.folders import FileSource
from lambdanet_tf.environment import KERAS_3
from tests.support.arrays import assert_same

DECAY = 0.9
EPOCHS, STEPS, BATCH = 3, 4, 8


class Watch(tf.keras.callbacks.Callback):
    """Notes the weights at some moments of a training, in float64."""

    def __init__(self):
        super().__init__()
        self.begin, self.trained, self.during, self.end = [], [], [], []
        self.on_epoch_begin = self._noting(self.begin)
        self.on_train_batch_end = self._noting(self.trained)
        self.on_test_batch_end = self._noting(self.during)
        self.on_epoch_end = self._noting(self.end)

    def _noting(self, moments):
        return lambda *_, **__: moments.append(exact(self.model.get_weights()))


def exact(weights):
    return [np.asarray(weight, np.float64) for weight in weights]


def small_model(optimizer="sgd", **arguments):
    """A compiled network with statistics, without random layers."""
    tf.keras.utils.set_random_seed(0)
    norm = tf.keras.layers.BatchNormalization(momentum=0.8)
    layers = [tf.keras.layers.Dense(7), norm, tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential([tf.keras.Input((5,)), *layers])
    loss = tf.keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False, **arguments)
    return model


def fit(model, rng, callbacks, epochs=EPOCHS):
    inputs = rng.normal(size=(STEPS * BATCH, 5)).astype("float32")
    labels = np.eye(3, dtype="float32")[rng.integers(0, 3, STEPS * BATCH)]
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    options |= {"validation_data": (inputs, labels), "callbacks": callbacks}
    model.fit(inputs, labels, epochs=epochs, **options)


def averages_of(start, history):
    """The averages after some updates, by their formula."""
    for t, weights in enumerate(history, start=1):
        decay = min(DECAY, (1 + t) / (10 + t))
        pairs = zip(start, weights, strict=True)
        start = [decay * a + (1 - decay) * w for a, w in pairs]
    return start


POLICIES = [("float32", "adam", 1e-5), ("mixed_float16", "sgd", 1e-5)]
POLICIES += [("bfloat16", "sgd", 1e-2)]


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "optimizer", "tolerance"), POLICIES)
def test_averages_follow_their_formula_and_are_seen_below(
    rng, policy, optimizer, tolerance
):
    """By validation and callbacks below; not by training and those above.

    They are float32: a small step would leave bfloat16 where it is. A second
    `fit` begins them anew, from the weights that the model has.
    """
    tf.keras.mixed_precision.set_global_policy(policy)
    model, above, below = small_model(optimizer), Watch(), Watch()
    start = exact(model.get_weights())
    fit(model, rng, [above, training.UseAverages(DECAY), below])
    assert len(above.trained) == EPOCHS * STEPS
    averages = start
    for epoch in range(EPOCHS):
        last = (epoch + 1) * STEPS
        averages = averages_of(start, above.trained[:last])
        assert_same(below.end[epoch], averages, tolerance, tolerance)
        assert_same(below.during[last - 1], below.end[epoch])
        assert_same(above.end[epoch], above.trained[last - 1])
    assert not np.allclose(averages[0], above.trained[-1][0], atol=1e-4)
    # The next epoch goes on from the weights.
    assert_same(below.begin[1], above.trained[STEPS - 1])
    start = exact(model.get_weights())
    assert_same(start, below.end[-1])
    fit(model, rng, [again := Watch(), training.UseAverages(DECAY)], epochs=1)
    assert_same(again.begin[0], start)
    averages = averages_of(start, again.trained)
    assert_same(exact(model.get_weights()), averages, tolerance, tolerance)


@pytest.mark.slow
def test_a_compiled_network_is_fitted_saved_and_loaded(tmp_path):
    """Kernels alone decay, once, and accuracy is of images of any weight."""
    recipe = training.resolve("smoke", {"weight_decay": 0.05})
    pipeline = training.InputPipeline(recipe, data.load_images(recipe.data))
    model = training.recipe_network(recipe, pipeline.images)
    training.compile_network(model, recipe, pipeline.steps_per_epoch)
    options = {"steps_per_epoch": 2, "shuffle": False, "verbose": 0}
    options["class_weight"] = dict(enumerate(range(1, 11)))
    options["validation_data"] = pipeline.scan(pipeline.images.validation)
    history = model.fit(pipeline.training(), **options).history
    assert set(history) >= {"loss", "accuracy", "top5_accuracy", "val_loss"}
    images, labels = map(np.asarray, next(iter(pipeline.training())))
    logs = model.test_on_batch(images, labels, return_dict=True)
    named = models.named_weights(model).items()
    kernels = [w.numpy() for name, w in named if name.endswith("kernel")]
    # A penalty whose gradient is d w: what coupled weight decay adds.
    penalty = 0.05 / 2 * sum(np.sum(kernel**2) for kernel in kernels)
    assert len(model.losses) == len(kernels) > 4
    assert float(sum(model.losses)) == pytest.approx(penalty, rel=1e-5)
    data_loss = float(model.loss(labels, model(images, training=False)))
    assert logs["loss"] == pytest.approx(data_loss + penalty, rel=1e-4)
    weights = np.where(np.argmax(labels, 1) < 5, 1.0, 10.0)
    weighted = model.test_on_batch(images, labels, weights, return_dict=True)
    for name in ("accuracy", "top5_accuracy"):
        assert weighted[name] == pytest.approx(logs[name])
    assert weighted["loss"] != pytest.approx(logs["loss"])
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert_same(loaded(images), model(images), 1e-5, 1e-5)
    assert int(loaded.optimizer.iterations) == 2
    loaded.train_on_batch(images, labels)


def pipeline_of(rng, number, strategy=None):
    """Images of 8x8 pixels, each a class of its own; batches of four."""
    arrays = rng.integers(0, 256, (number, 8, 8, 1), np.uint8), range(number)
    names = [*map(str, range(number))]
    source = ArraySource(*map(np.asarray, arrays))
    images = data.ImageSet("x", names, 1, source, None, source)
    recipe = training.resolve("smoke", {"batch_size": 4})
    return training.InputPipeline(recipe, images, strategy)


@pytest.mark.slow
def test_replicas_fit_and_evaluate_all_images_without_class_weights(
    rng, two_replicas
):
    """Of nine images the last batch of four has one, for two replicas."""
    pipeline = pipeline_of(rng, 9, two_replicas)
    with two_replicas.scope():
        model = training.recipe_network(pipeline.recipe, pipeline.images)
    training.compile_network(model, pipeline.recipe, 2)
    scan = pipeline.scan(pipeline.images.test)
    options = {"steps_per_epoch": 2, "shuffle": False, "verbose": 0}
    training_batches = pipeline.training()
    with pytest.raises(ValueError, match="`class_weight` .* is for one device"):
        model.fit(training_batches, class_weight={0: 2.0}, **options)
    model.fit(training_batches, validation_data=scan, **options)
    logs = model.evaluate(scan, verbose=0, return_dict=True)
    images, labels = map(np.concatenate, zip(*scan, strict=True))
    right = np.argmax(model(images), 1) == np.argmax(labels, 1)
    assert len(right) == 9
    assert logs["accuracy"] == pytest.approx(np.mean(right))


def test_keras_evaluates_a_scan_of_bad_images_as_the_others(tmp_path, rng):
    """Of three batches of four images, where five of ten are bad."""
    pixels = rng.integers(0, 256, (10, 8, 8, 1), np.uint8)
    files = [f"{tmp_path}/{number}.png" for number in range(10)]
    for number, file in enumerate(files):
        content = tf.io.encode_png(pixels[number])
        tf.io.write_file(file, "bad" if 0 < number < 6 else content)
    source = FileSource(files, np.arange(10), channels=1)
    images = data.ImageSet("x", files, 1, source, None, source)
    recipe = training.resolve("smoke", {"batch_size": 4})
    scan = training.InputPipeline(recipe, images).scan(source)
    layers = [tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential([tf.keras.Input((8, 8, 1)), *layers])
    training.compile_network(model, recipe, 1)
    kept = [0, *range(6, 10)]
    inputs, labels = pixels[kept].astype("float32"), np.eye(10)[kept]
    expected = model.evaluate(inputs, labels, verbose=0, return_dict=True)
    warns = contextlib.nullcontext()
    if KERAS_3:
        warns = pytest.warns(UserWarning, match="ran out of data")
    with warns:
        logs = model.evaluate(scan, verbose=0, return_dict=True)
    assert logs == pytest.approx(expected, rel=1e-4)


@pytest.mark.skipif(not KERAS_3, reason="Keras 2 sums before it clips")
@pytest.mark.parametrize(
    "field", [{"global_clipnorm": 1.0}, {"precision": "mixed_float16"}]
)
def test_what_keras_does_for_each_replica_alone_is_refused(two_replicas, field):
    """Few classes have no top-5 accuracy."""
    recipe = training.resolve("smoke", field)
    with two_replicas.scope():
        model = small_model()
    with pytest.raises(ValueError, match="not for `model.fit`"):
        training.compile_network(model, recipe, 10)
    training.compile_network(model := small_model(), recipe, 10)
    logs = model.evaluate(np.zeros((2, 5)), np.eye(3)[:2], verbose=0)
    assert len(logs) == 2
