"""Compiling for `model.fit`, and averages beside Keras' own callbacks."""

import os

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.analysis import analyze
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.models import clone_network

DECAY = 0.9
EPOCHS, STEPS, BATCH = 3, 4, 8


class KilledError(Exception):
    pass


class Each(tf.keras.callbacks.Callback):
    """Calls a function after each batch, with its number from 1."""

    def __init__(self, function):
        super().__init__()
        self._function, self._number = function, 0

    def on_train_batch_end(self, batch, logs=None):
        self._number += 1
        self._function(self._number, self.model)


class Watch(tf.keras.callbacks.Callback):
    """Notes the weights at some moments of a training."""

    def __init__(self):
        super().__init__()
        self.begin, self.during, self.end = [], [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.begin.append(self.model.get_weights())

    def on_test_batch_end(self, batch, logs=None):
        self.during.append(self.model.get_weights())

    def on_epoch_end(self, epoch, logs=None):
        self.end.append(self.model.get_weights())


def small_model(optimizer="sgd", **arguments):
    """A compiled network with statistics, without random layers."""
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((5,)),
            tf.keras.layers.Dense(7),
            tf.keras.layers.BatchNormalization(momentum=0.8),
            tf.keras.layers.Dense(3),
        ]
    )
    loss = tf.keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False, **arguments)
    return model


@pytest.fixture
def batches(rng):
    inputs = rng.normal(size=(STEPS * BATCH, 5)).astype("float32")
    labels = np.eye(3, dtype="float32")[rng.integers(0, 3, STEPS * BATCH)]
    return inputs, labels


def fit(model, batches, callbacks, epochs=EPOCHS, **arguments):
    return model.fit(
        *batches,
        batch_size=BATCH,
        epochs=epochs,
        shuffle=False,
        callbacks=callbacks,
        verbose=0,
        **{"validation_data": batches, **arguments},
    )


def assert_equal(actual, expected, tolerance=0.0):
    for now, then in zip(actual, expected, strict=True):
        np.testing.assert_allclose(now, then, rtol=tolerance, atol=tolerance)


# The averages.


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_averages_of_any_optimizer_follow_their_formula(batches, optimizer):
    history = []
    model = small_model(optimizer)
    expected = model.get_weights()
    note = Each(lambda number, model: history.append(model.get_weights()))
    fit(model, batches, [note, training.UseAverages(DECAY)])
    assert len(history) == EPOCHS * STEPS
    for t, weights in enumerate(history, start=1):
        decay = min(DECAY, (1 + t) / (10 + t))
        expected = [
            decay * a + (1 - decay) * w
            for a, w in zip(expected, weights, strict=True)
        ]
    assert_equal(model.get_weights(), expected, 1e-5)
    assert not np.allclose(model.get_weights()[0], history[-1][0], atol=1e-4)


def test_who_sees_the_averages(batches):
    """Validation and the callbacks below do; training and those above not."""
    above, below = Watch(), Watch()
    model = small_model()
    trained = []
    note = Each(lambda number, model: trained.append(model.get_weights()))
    fit(model, batches, [note, above, training.UseAverages(DECAY), below])
    for epoch in range(EPOCHS):
        last = trained[(epoch + 1) * STEPS - 1]
        assert_equal(above.end[epoch], last)
        averages = below.end[epoch]
        assert not np.allclose(averages[0], last[0], atol=1e-4)
        assert_equal(above.during[(epoch + 1) * STEPS - 1], averages)
    # The next epoch goes on from the weights.
    assert_equal(below.begin[1], trained[STEPS - 1])
    assert_equal(model.get_weights(), below.end[-1])


def test_averages_of_replicas_are_those_of_one_device(batches, two_replicas):
    weights = []
    for strategy in (tf.distribute.get_strategy(), two_replicas):
        with strategy.scope():
            model = small_model()
            for layer in model.layers:
                if isinstance(layer, tf.keras.layers.BatchNormalization):
                    layer.trainable = False  # Each replica has its own.
            model.compile("sgd", model.loss, jit_compile=False)
        fit(model, batches, [training.UseAverages(DECAY)], validation_data=None)
        weights.append(model.get_weights())
    assert_equal(*weights, 1e-5)


def test_a_training_that_breaks_leaves_no_averages_behind(batches):
    model, trained = small_model(), []

    class Break(tf.keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            raise KilledError

    note = Each(lambda number, model: trained.append(model.get_weights()))
    with pytest.raises(KilledError):
        fit(model, batches, [note, training.UseAverages(DECAY), Break()])
    assert not np.allclose(model.get_weights()[0], trained[-1][0], atol=1e-4)
    watch = Watch()
    fit(model, batches, [training.UseAverages(DECAY), watch])
    assert_equal(watch.begin[0], trained[-1])


def test_after_compiling_again_it_begins_from_what_the_model_has(batches):
    model = small_model()
    fit(model, batches, [training.UseAverages(DECAY)])
    averages, watch = model.get_weights(), Watch()
    model.compile("sgd", model.loss)
    fit(model, batches, [training.UseAverages(DECAY), watch])
    assert_equal(watch.begin[0], averages)


def test_several_steps_in_a_batch_are_refused(batches):
    model = small_model(steps_per_execution=2)
    with pytest.raises(ValueError, match="`steps_per_execution` must be 1"):
        fit(model, batches, [training.UseAverages(DECAY)])


# Beside Keras' callbacks.


def resumable(folder):
    """What a notebook gives to `fit` to lose nothing."""
    return [
        tf.keras.callbacks.BackupAndRestore(os.path.join(folder, "backup")),
        training.UseAverages(DECAY, os.path.join(folder, "averages")),
    ]


def test_a_killed_fit_resumes_to_the_same_end(batches, tmp_path):
    peace = small_model()
    fit(peace, batches, [training.UseAverages(DECAY)])

    def kill(number, model):
        if number == STEPS + 2:
            raise KilledError

    with pytest.raises(KilledError):
        fit(small_model(), batches, [*resumable(tmp_path), Each(kill)])
    assert os.listdir(tmp_path / "averages") == [f"averages-{STEPS}.npz"]

    again, taken = small_model(), []
    note = Each(lambda number, model: taken.append(number))
    fit(again, batches, [*resumable(tmp_path)[::-1], note])
    assert len(taken) == (EPOCHS - 1) * STEPS
    assert_equal(again.get_weights(), peace.get_weights(), 1e-6)
    assert not os.listdir(tmp_path / "averages")


def test_averages_of_another_step_are_refused(batches, tmp_path):
    folder = tmp_path / "averages"
    model = small_model()
    fit(model, batches, [training.UseAverages(DECAY)], epochs=1)
    folder.mkdir()
    (folder / "averages-3.npz").write_bytes(b"of an older training")
    with pytest.raises(ValueError, match="averages after 4 updates.* after 3"):
        fit(model, batches, [training.UseAverages(DECAY, folder)])


def test_the_best_averages_can_be_kept(batches, tmp_path):
    path = str(tmp_path / "best.weights.h5")
    keep = tf.keras.callbacks.ModelCheckpoint(
        path,
        monitor="val_loss",
        save_best_only=True,
        save_weights_only=True,
    )
    model, watch = small_model(), Watch()
    use = training.UseAverages(DECAY)
    losses = fit(model, batches, [use, keep, watch]).history["val_loss"]
    fresh = small_model()
    fresh.load_weights(path)
    assert_equal(fresh.get_weights(), watch.end[int(np.argmin(losses))])


# Compiling with a recipe.


@pytest.fixture(scope="module")
def compiled():
    """A network with a lambda layer, compiled and trained for two steps."""
    recipe = training.resolve(
        "smoke",
        {
            "epochs": 1,
            "model_arguments": {
                "stages": ["LL"],
                "widths": [8],
                "strides": [1],
                "share_embeddings": True,
                "scope": None,
            },
        },
    )
    pipeline = training.InputPipeline(recipe, data.load_images(recipe.data))
    model = training.recipe_network(recipe, pipeline.images)
    training.compile_network(model, recipe, pipeline.steps_per_epoch)
    history = model.fit(
        pipeline.training(),
        steps_per_epoch=2,
        shuffle=False,
        validation_data=pipeline.scan(pipeline.images.validation),
        verbose=0,
    )
    return recipe, pipeline, model, history.history


def test_all_that_is_compiled_is_keras_own(compiled):
    recipe, _, model, history = compiled
    assert type(model.optimizer) is tf.keras.optimizers.SGD
    assert type(model.loss) is tf.keras.losses.CategoricalCrossentropy
    assert set(history) >= {"loss", "accuracy", "top5_accuracy", "val_loss"}
    assert history["top5_accuracy"][0] >= history["accuracy"][0]
    assert recipe.label_smoothing == 0.1


def test_a_compiled_network_is_saved_and_loaded(compiled, tmp_path):
    _, pipeline, model, _ = compiled
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    images, labels = next(iter(pipeline.training()))
    np.testing.assert_allclose(
        loaded(images), model(images), rtol=1e-5, atol=1e-5
    )
    assert int(loaded.optimizer.iterations) == 2
    logs = loaded.train_on_batch(images, labels, return_dict=True)
    expected = model.test_on_batch(images, labels, return_dict=True)
    assert set(logs) == set(expected)


def test_a_compiled_network_is_analyzed_at_another_size(compiled):
    """As a copy, which the optimizer and the metrics must not prevent."""
    _, _, model, _ = compiled
    at_16 = analyze(model, image_size=16, executed=False)
    at_8 = analyze(model, executed=False)
    assert at_16.total("flops") > 4 * at_8.total("flops")
    assert clone_network(model).count_params() == model.count_params()


def test_the_loss_of_a_fit_has_the_penalty_once(compiled):
    recipe, pipeline, model, _ = compiled
    batch = next(iter(pipeline.training()))
    logs = model.test_on_batch(*batch, return_dict=True)
    logits = model(batch[0], training=False)
    data_loss = float(model.loss(batch[1], logits))
    kernels = [
        w.numpy()
        for w in model.trainable_variables
        if len(w.shape) > 1 and "embeddings" not in w.name
    ]
    squares = sum(np.sum(np.square(kernel)) for kernel in kernels)
    penalty = recipe.weight_decay / 2 * squares
    assert logs["loss"] == pytest.approx(data_loss + penalty, rel=1e-4)
    assert penalty > 1e-3


def test_a_scan_is_evaluated_as_its_images_are(compiled):
    _, pipeline, model, history = compiled
    source = pipeline.images.validation
    images, labels = map(
        np.concatenate, zip(*pipeline.scan(source), strict=True)
    )
    assert len(images) == source.num_images == 143
    # Batches of `evaluation` are filled up: 49 images of weight 0.
    padded = model.evaluate(pipeline.evaluation(source), verbose=0)
    logs = model.evaluate(pipeline.scan(source), verbose=0, return_dict=True)
    logits = model.predict_on_batch(images)
    correct = np.argmax(logits, 1) == np.argmax(labels, 1)
    assert logs["accuracy"] == pytest.approx(np.mean(correct))
    assert padded[1] == pytest.approx(np.mean(correct))
    assert logs["loss"] == pytest.approx(history["val_loss"][0], rel=1e-5)
    whole = model.evaluate(images, labels, verbose=0)
    assert logs["loss"] == pytest.approx(whole[0], rel=1e-4)


def test_few_classes_have_no_top_5():
    recipe = training.resolve("smoke")
    inputs = tf.keras.Input((4,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(3)(inputs))
    training.compile_network(model, recipe, 10)
    logs = model.evaluate(np.zeros((2, 4)), np.eye(3)[:2], verbose=0)
    assert len(logs) == 2


@pytest.mark.skipif(not KERAS_3, reason="Keras 2 sums before it clips")
@pytest.mark.parametrize(
    "field", [{"global_clipnorm": 1.0}, {"precision": "mixed_float16"}]
)
def test_what_keras_does_for_each_replica_alone_is_refused(two_replicas, field):
    recipe = training.resolve("smoke", field)
    with two_replicas.scope():
        model = small_model()
    with pytest.raises(ValueError, match="not for `model.fit`"):
        training.compile_network(model, recipe, 10)
