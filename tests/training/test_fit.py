"""Batches, compiling for `model.fit`, and averages beside Keras' callbacks."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf import training
from lambdanet_tf.data.arrays import ArraySource
from lambdanet_tf.environment import KERAS_3
from tests.support import image_sets
from tests.support.arrays import assert_same

DECAY = 0.9
EPOCHS, STEPS, BATCH = 3, 4, 8


def exact(weights):
    return [np.asarray(weight, np.float64) for weight in weights]


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


def small_model(optimizer="sgd"):
    """A compiled network with statistics, without random layers."""
    tf.keras.utils.set_random_seed(0)
    norm = tf.keras.layers.BatchNormalization(momentum=0.8)
    layers = [tf.keras.layers.Dense(7), norm, tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential([tf.keras.Input((5,)), *layers])
    model.compile(optimizer, "mse", jit_compile=False)
    return model


def fit(model, rng, callbacks, epochs=EPOCHS):
    x = rng.normal(size=(STEPS * BATCH, 5)).astype("float32")
    y = np.eye(3, dtype="float32")[rng.integers(0, 3, STEPS * BATCH)]
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    options |= {"validation_data": (x, y), "callbacks": callbacks}
    model.fit(x, y, epochs=epochs, **options)


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


@pytest.mark.slow
def test_replicas_fit_and_evaluate_all_images_without_class_weights(
    rng, two_replicas
):
    """Of nine images the last batch of four has one, for two replicas."""
    pixels = rng.integers(0, 256, (9, 8, 8, 1), np.uint8)
    source = ArraySource(pixels, np.arange(9))
    images = data.ImageSet("x", [*"012345678"], 1, source, None, source)
    recipe = training.resolve("smoke", {"batch_size": 4})
    pipeline = training.InputPipeline(recipe, images, two_replicas)
    with two_replicas.scope():
        model = training.recipe_network(pipeline.recipe, pipeline.images)
    training.compile_network(model, pipeline.recipe, 2)
    scan = pipeline.scan(pipeline.images.test)
    options = {"steps_per_epoch": 2, "shuffle": False, "verbose": 0}
    training_batches = pipeline.training()
    with pytest.raises(ValueError, match="`class_weight` .* on one device"):
        model.fit(training_batches, class_weight={0: 2.0}, **options)
    model.fit(training_batches, validation_data=scan, **options)
    logs = model.evaluate(scan, verbose=0, return_dict=True)
    images, labels = map(np.concatenate, zip(*scan, strict=True))
    right = np.argmax(model(images), 1) == np.argmax(labels, 1)
    assert len(right) == 9
    assert logs["accuracy"] == pytest.approx(np.mean(right))
    alone = {"global_clipnorm": 1.0}, {"precision": "mixed_float16"}
    for field in alone if KERAS_3 else ():  # Keras 2 sums before it clips.
        recipe = training.resolve("smoke", field)
        with pytest.raises(ValueError, match="not work in `model.fit`"):
            training.compile_network(model, recipe, 10)


class Hosts:
    """A strategy of several hosts, whose datasets are made one by one."""

    def __init__(self, hosts, replicas):
        self.hosts, self.num_replicas_in_sync = hosts, replicas

    def distribute_datasets_from_function(self, make):
        hosts = range(self.hosts)
        return [make(tf.distribute.InputContext(len(hosts), i)) for i in hosts]


def pipeline_of(images, batch_size, strategy=None):
    """The batches of images of one pixel."""
    changes = {"batch_size": batch_size, "image_size": 1}
    recipe = training.resolve("smoke", changes)
    return training.InputPipeline(recipe, images, strategy)


def weights_of(images, batch_size, strategy):
    """The weights of an evaluation by host and step, which are as many."""
    pipeline = pipeline_of(images, batch_size, strategy)
    hosts = pipeline.evaluation(images.test)
    return np.array([[batch[2] for batch in host] for host in hosts])


@pytest.mark.once
@pytest.mark.parametrize("sizes", [[10] * 3, [1, 1, 30, 2], [17]])
@pytest.mark.parametrize(("hosts", "replicas"), [(1, 1), (2, 4), (5, 5)])
def test_the_weights_of_an_evaluation_are_the_images(sizes, hosts, replicas):
    source = image_sets.Files(*sizes)
    images = data.ImageSet("x", ["a", "b"], 1, source, None, source)
    weights = weights_of(images, replicas * 2, Hosts(hosts, replicas))
    assert weights.sum() == sum(sizes)
    assert weights[:, -replicas // hosts :].any(), "a step without an image"


@pytest.mark.slow
def test_corrupt_images_do_not_count(tmp_path):
    """In a training, and in an evaluation on several hosts."""
    contents = [image_sets.png([i, i, i], (1, 1)) for i in range(23)]
    corrupt = 0, 7, 8, 22
    for number in corrupt:
        contents[number] = b"nothing"
    files = {f"{i % 10}/{i}.png": x for i, x in enumerate(contents)}
    for part in ("train", "test"):
        image_sets.write_files(tmp_path / part, files)
    images = data.load_images(f"folder:{tmp_path}", 0.0)
    for hosts in (1, 3):
        assert weights_of(images, hosts, Hosts(hosts, hosts)).sum() == 19
    (batch,) = pipeline_of(images, 19).training_batches().take(1)
    assert len(np.unique(batch[0])) == 19
