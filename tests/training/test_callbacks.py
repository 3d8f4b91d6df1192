"""Compiling for `model.fit`, and averages beside Keras' own callbacks."""

import contextlib
import copy
import os

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.analysis import analyze
from lambdanet_tf.data.folders import FileSource
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.models import clone_network
from tests.support.arrays import assert_same

DECAY = 0.9
EPOCHS, STEPS, BATCH = 3, 4, 8


class KilledError(Exception):
    pass


class Kill(tf.keras.callbacks.Callback):
    """Ends a training when an event comes for the `number`-th time."""

    def __init__(self, event, number=1):
        super().__init__()
        self._left = number
        setattr(self, event, self._count)

    def _count(self, *_, **__):
        self._left -= 1
        if self._left == 0:
            raise KilledError


class Watch(tf.keras.callbacks.Callback):
    """Notes the weights at some moments of a training."""

    def __init__(self):
        super().__init__()
        self.begin, self.trained, self.during, self.end = [], [], [], []

    def on_epoch_begin(self, epoch, logs=None):
        if self.model.built:
            self.begin.append(self.model.get_weights())

    def on_train_batch_end(self, batch, logs=None):
        self.trained.append(self.model.get_weights())

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


def fit_killed(*arguments, **keywords):
    with pytest.raises(KilledError):
        fit(*arguments, **keywords)


def averages_of(start, history, first=1):
    """The averages after the updates from the `first` on, by their formula."""
    for t, weights in enumerate(history, start=first):
        decay = min(DECAY, (1 + t) / (10 + t))
        start = [
            decay * a + (1 - decay) * w
            for a, w in zip(start, weights, strict=True)
        ]
    return start


# The averages.


@pytest.mark.slow
@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("policy", "optimizer", "tolerance"),
    [
        ("float32", "sgd", 1e-5),
        ("float32", "adam", 1e-5),
        ("mixed_bfloat16", "sgd", 1e-5),
        ("mixed_float16", "sgd", 1e-5),
        ("bfloat16", "sgd", 1e-5),
        ("float16", "sgd", 1e-5),
        ("float64", "sgd", 1e-6),
    ],
)
def test_averages_under_any_policy_follow_their_formula(
    batches, policy, optimizer, tolerance, tmp_path
):
    """In float32 at least: a small step would leave bfloat16 where it is."""
    tf.keras.mixed_precision.set_global_policy(policy)
    model, watch = small_model(optimizer), Watch()

    def exact(weights):
        return [np.asarray(w, np.float64) for w in weights]

    expected = exact(model.get_weights())
    use = training.UseAverages(DECAY, tmp_path / "averages")
    fit(model, batches, [use, watch])
    history = [exact(weights) for weights in watch.trained]
    assert len(history) == EPOCHS * STEPS
    averages = [variable.numpy() for variable in use._averages.variables]
    assert {a.dtype.name for a in averages} == {
        "float64" if policy == "float64" else "float32"
    }
    expected = averages_of(expected, history)
    assert_same(averages, expected, tolerance, tolerance)
    assert not np.allclose(averages[0], history[-1][0], atol=1e-4)
    assert_same(exact(watch.begin[1]), history[STEPS - 1])
    if policy == "float32":
        assert_same(model.get_weights(), averages)


@pytest.mark.slow
def test_who_sees_the_averages(batches):
    """Validation and the callbacks below do; training and those above not."""
    above, below = Watch(), Watch()
    model = small_model()
    fit(model, batches, [above, training.UseAverages(DECAY), below])
    for epoch in range(EPOCHS):
        last = below.trained[(epoch + 1) * STEPS - 1]
        assert_same(above.end[epoch], last)
        averages = below.end[epoch]
        assert not np.allclose(averages[0], last[0], atol=1e-4)
        assert_same(above.during[(epoch + 1) * STEPS - 1], averages)
    # The next epoch goes on from the weights.
    assert_same(below.begin[1], below.trained[STEPS - 1])
    assert_same(model.get_weights(), below.end[-1])


@pytest.mark.thorough
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
    assert_same(*weights, 1e-5, 1e-5)


@pytest.mark.slow
def test_several_steps_in_a_batch_are_refused(batches):
    model = small_model(steps_per_execution=2)
    with pytest.raises(ValueError, match="`steps_per_execution` must be 1"):
        fit(model, batches, [training.UseAverages(DECAY)])


# Everyday sequences: each ends in a fit, which begins from the weights that
# the one before trained, unless something else has set or trained weights.


def load(model):
    """Of a model or a layer."""
    model.set_weights([np.full_like(w, 0.5) for w in model.get_weights()])


def assert_loaded(weights):
    for weight in weights:
        np.testing.assert_array_equal(weight, np.full_like(weight, 0.5))


FIRST = {  # The decay, and the event at which it is interrupted.
    "fitted": (DECAY, None),
    "fitted with another decay": (0.5, None),
    "interrupted in validation": (DECAY, "on_test_batch_end"),
    "interrupted at an epoch's end": (DECAY, "on_epoch_end"),
    "interrupted in an epoch": (DECAY, "on_train_batch_end"),
}
LEAVES_WEIGHTS = {
    "nothing": lambda *_: None,
    "evaluated": lambda model, batches, _: model.evaluate(*batches, verbose=0),
    "evaluated with the callback": lambda model, batches, use: model.evaluate(
        *batches, verbose=0, callbacks=[use]
    ),
}
SETS_WEIGHTS = {
    "loaded": lambda model, *_: load(model),
    "loaded a layer": lambda model, *_: load(model.layers[-1]),
    "compiled": lambda model, *_: model.compile(
        "sgd", model.loss, jit_compile=False
    ),
    "trained without averages": lambda model, batches, _: fit(
        model, batches, [], epochs=1
    ),
    "trained on a batch": lambda model, batches, _: model.train_on_batch(
        *batches
    ),
}
THEN = LEAVES_WEIGHTS | SETS_WEIGHTS
# After every first part; what comes then is compared after one of them.
SEQUENCES = [("fitted", then) for then in THEN]
SEQUENCES += [(first, "nothing") for first in FIRST if first != "fitted"]
SEQUENCES += [("interrupted in validation", "loaded")]


@pytest.mark.slow
@pytest.mark.representatives(4)
@pytest.mark.parametrize(("first", "then"), SEQUENCES)
def test_a_second_fit_puts_back_what_it_took_and_nothing_else(
    first, then, batches
):
    decay, event = FIRST[first]
    model, watch = small_model(), Watch()
    use = training.UseAverages(decay)
    if event:
        fit_killed(model, batches, [watch, use, Kill(event)], epochs=1)
    else:
        fit(model, batches, [watch, use], epochs=1)
    averages, trained = model.get_weights(), watch.trained[-1]
    THEN[then](model, batches, use)
    if then.startswith("evaluated"):
        assert_same(model.get_weights(), averages)
    found, watch = model.get_weights(), Watch()
    model.optimizer.learning_rate = 0.0
    fit(model, batches, [training.UseAverages(DECAY), watch], epochs=1)
    if then in SETS_WEIGHTS or first == "interrupted in an epoch":
        assert_same(watch.begin[0], found)
        kernel = model.get_weights()[0]  # Averages of one value are the value.
        np.testing.assert_allclose(kernel, found[0], rtol=1e-6, atol=1e-7)
    else:
        assert_same(watch.begin[0], trained)
        assert not np.allclose(trained[0], found[0], atol=1e-4)


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize("again", [False, True])
def test_a_second_fit_averages_with_its_own_decay(batches, again):
    """Also with an instance that was used before, on the same averages."""
    model, watch = small_model(), Watch()
    use = training.UseAverages(DECAY if again else 0.1)
    fit(model, batches, [use], epochs=1)
    start = model.get_weights()
    use = use if again else training.UseAverages(DECAY)
    fit(model, batches, [watch, use], epochs=2)
    expected = averages_of(start, watch.trained, first=STEPS + 1)
    assert_same(model.get_weights(), expected, 1e-5, 1e-5)


@pytest.mark.slow
def test_a_saved_model_is_what_was_evaluated(batches, tmp_path):
    """Nothing of the averages is in files or copies."""
    model = small_model()
    path = str(tmp_path / "model.keras")
    names = [sorted(w.name for w in model.weights)]
    fit(model, batches, [training.UseAverages(DECAY)], epochs=1)
    names.append(sorted(w.name for w in model.weights))
    assert names[0] == names[1]
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    assert_same(loaded.get_weights(), model.get_weights())
    assert_same(copy.deepcopy(model).get_weights(), model.get_weights())
    watch = Watch()
    fit(loaded, batches, [training.UseAverages(DECAY), watch], epochs=1)
    assert_same(watch.begin[0], model.get_weights())


@pytest.mark.slow
def test_weights_that_a_callback_sets_are_kept(batches):
    """While the model has the averages: training goes on from there."""

    class Reload(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                load(self.model)

    model, watch = small_model(), Watch()
    fit(model, batches, [training.UseAverages(DECAY), Reload(), watch])
    assert_loaded(watch.begin[1])


@pytest.mark.slow
def test_a_model_that_its_first_batch_builds_is_averaged(batches):
    tf.keras.utils.set_random_seed(0)
    model, watch = tf.keras.Sequential([tf.keras.layers.Dense(3)]), Watch()
    model.compile("sgd", "mse", jit_compile=False)
    fit(model, batches, [training.UseAverages(DECAY), watch])
    last = watch.trained[STEPS - 1]
    assert not np.allclose(watch.end[0][0], last[0], atol=1e-4)
    assert_same(watch.begin[-EPOCHS + 1], last)


def test_shared_statistics_are_not_reduced_again(two_replicas):
    """Synchronized ones are the same on all replicas already."""

    def reductions(synchronized):
        with two_replicas.scope():
            norm = tf.keras.layers.BatchNormalization(synchronized=synchronized)
            model = tf.keras.Sequential([tf.keras.layers.Input((3,)), norm])
            averages = training.Averages(model, DECAY)
        step = tf.function(
            lambda: two_replicas.run(averages.update, args=(tf.constant(1),))
        )
        operations = step.get_concrete_function().graph.get_operations()
        return sum(operation.type == "AddN" for operation in operations)

    assert reductions(synchronized=False) > 0
    assert reductions(synchronized=True) == 0


# Beside Keras' callbacks.


@pytest.mark.slow
def test_killed_where_no_averages_were_kept(batches, tmp_path):
    """Older averages are used, and a warning says so; damaged ones are not."""

    def callbacks():
        _, use = resumable(tmp_path)
        folder = os.path.join(tmp_path, "backup")
        return [tf.keras.callbacks.BackupAndRestore(folder, save_freq=3), use]

    kill = Kill("on_train_batch_end", 2 * STEPS + 3)
    fit_killed(small_model(), batches, [*callbacks(), kill])
    names = sorted(os.listdir(tmp_path / "averages"))
    assert names == ["averages-4.npz", "averages-8.npz"]
    (tmp_path / "averages" / names[1]).write_bytes(b"cut short")
    with pytest.warns(UserWarning, match="those after 4 updates are used"):
        fit(small_model(), batches, callbacks())


@pytest.mark.slow
def test_weights_loaded_after_a_backup_are_not_overwritten(batches, tmp_path):
    """In the same process, and without `BackupAndRestore`."""
    folder, model, watch = tmp_path / "averages", small_model(), Watch()
    use = training.UseAverages(DECAY, folder)
    fit_killed(model, batches, [use, Kill("on_epoch_end")])
    load(model)
    with pytest.warns(UserWarning, match="of other weights: they begin anew"):
        fit(model, batches, [training.UseAverages(DECAY, folder), watch])
    assert_loaded(watch.begin[0])


@pytest.mark.slow
def test_early_stopping_restores_the_best_averages(batches):
    model, watch = small_model(), Watch()
    model.optimizer.learning_rate = 3.0  # The loss grows at some time.
    stop = tf.keras.callbacks.EarlyStopping(
        patience=1, restore_best_weights=True
    )
    callbacks = [training.UseAverages(DECAY), watch, stop]
    losses = fit(model, batches, callbacks, epochs=30).history["val_loss"]
    best = int(np.argmin(losses))
    assert best < len(losses) - 1
    assert_same(model.get_weights(), watch.end[best])


def resumable(folder):
    """What a notebook gives to `fit` to lose nothing."""
    return [
        tf.keras.callbacks.BackupAndRestore(os.path.join(folder, "backup")),
        training.UseAverages(DECAY, os.path.join(folder, "averages")),
    ]


@pytest.mark.slow
@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("event", "number", "epochs", "arguments"),
    [  # The event of the kill, its number, and the epochs left.
        ("on_train_batch_end", STEPS + 2, EPOCHS - 1, {}),
        # After the backup of `BackupAndRestore`.
        ("on_epoch_end", 2, EPOCHS - 2, {}),
        ("on_epoch_end", 2, EPOCHS - 2, {"validation_data": None}),
    ],
)
def test_a_killed_fit_resumes_to_the_same_end(
    batches, tmp_path, event, number, epochs, arguments
):
    """What an older training left is in no one's way."""
    peace, folder = small_model(), tmp_path / "averages"
    fit(peace, batches, [training.UseAverages(DECAY)], **arguments)
    folder.mkdir()
    (folder / "averages-99.npz").write_bytes(b"of an older training")
    backup, use = resumable(tmp_path)
    kill = Kill(event, number)
    fit_killed(small_model(), batches, [backup, kill, use], **arguments)
    kept = [f"averages-{STEPS * n}.npz" for n in range(1, EPOCHS - epochs + 1)]
    assert sorted(os.listdir(folder)) == kept
    again, watch = small_model(), Watch()
    callbacks = resumable(tmp_path)[:: 1 if epochs == 1 else -1]  # Any order.
    fit(again, batches, [*callbacks, watch], **arguments)
    assert len(watch.trained) == epochs * STEPS
    assert_same(again.get_weights(), peace.get_weights(), 1e-6, 1e-6)
    assert not os.listdir(folder)


@pytest.mark.slow
def test_averages_of_another_step_are_refused(batches, tmp_path):
    folder = tmp_path / "averages"
    model = small_model()
    fit(model, batches, [training.UseAverages(DECAY)], epochs=1)
    folder.mkdir()
    (folder / "averages-3.npz").write_bytes(b"of an older training")
    with pytest.raises(ValueError, match="averages after 4 updates.* after 3"):
        fit(model, batches, [training.UseAverages(DECAY, folder)])


class Score(tf.keras.callbacks.Callback):
    """Puts a value into the logs of each epoch."""

    def __init__(self, *values):
        super().__init__()
        self._values = values

    def on_epoch_end(self, epoch, logs=None):
        logs["score"] = self._values[epoch]
        self.epoch = epoch


def keep_best(path):
    return training.KeepBest(path, "score", mode="max", save_weights_only=True)


def assert_kept(path, expected):
    model = small_model()
    model.load_weights(path)
    assert_same(model.get_weights(), expected)


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize("use_averages", [True, False])
def test_the_best_stays_the_best_of_an_interrupted_training(
    batches, tmp_path, use_averages
):
    """Run again in the same folder: no worse epoch takes its place."""
    path, watch = str(tmp_path / "best.weights.h5"), Watch()

    def callbacks(*more):
        backup, use = resumable(tmp_path)
        above = [backup, use] if use_averages else [backup]
        score = Score(0.2, 0.9, 0.4, 0.5)
        return [*above, watch, score, *more, keep_best(path)]

    kill = Kill("on_epoch_end", 3)
    fit_killed(small_model(), batches, callbacks(kill), epochs=4)
    best = watch.end[1]
    assert_kept(path, best)
    fit(small_model(), batches, callbacks(), epochs=4)
    assert_kept(path, best)
    # Another training begins with a best of its own.
    assert not os.path.exists(f"{path}.json")
    kill = Kill("on_epoch_end", 2)
    fit_killed(small_model(), batches, callbacks(kill), epochs=4)
    assert_kept(path, watch.end[-2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "kept"),
    [
        ("half is saved", 2),
        ("all is saved", 2),
        ("it is noted", 2),
        ("it is renamed", 3),
    ],
)
def test_the_best_epoch_survives_a_kill_at_any_moment(
    batches, tmp_path, monkeypatch, when, kept
):
    """In the third epoch, the best."""
    path, watch = str(tmp_path / "best.weights.h5"), Watch()
    score = Score(0.2, 0.7, 0.9, 0.5)

    def callbacks():
        return [resumable(tmp_path)[0], watch, score, keep_best(path)]

    with monkeypatch.context() as patch:
        dying, rename = small_model(), tf.io.gfile.rename
        save = dying.save_weights

        def dying_save(filepath, *arguments, **options):
            save(filepath, *arguments, **options)
            # `BackupAndRestore` of Keras 3 calls it, too.
            is_backup = os.path.dirname(filepath) != str(tmp_path)
            if is_backup or score.epoch < 2:
                return
            if when == "half is saved":
                os.truncate(filepath, os.path.getsize(filepath) // 2)
            if when in ("half is saved", "all is saved"):
                raise KilledError

        def dying_rename(source, target, *arguments, **options):
            is_last = target == path and score.epoch == 2
            if is_last and when == "it is noted":
                raise KilledError
            rename(source, target, *arguments, **options)
            if is_last:
                raise KilledError

        patch.setattr(dying, "save_weights", dying_save)
        patch.setattr(tf.io.gfile, "rename", dying_rename)
        fit_killed(dying, batches, callbacks(), epochs=4)
    best = watch.end[kept - 1]
    assert_kept(path, best)
    fit(small_model(), batches, callbacks(), epochs=4)
    assert_kept(path, best)
    assert set(os.listdir(tmp_path)) - {"backup"} == {"best.weights.h5"}


@pytest.mark.slow
def test_a_damaged_best_epoch_is_replaced_and_said(batches, tmp_path):
    path, watch = tmp_path / "best.weights.h5", Watch()
    callbacks = [resumable(tmp_path)[0], watch, Score(0.2, 0.7, 0.9, 0.5)]
    callbacks += [keep_best(path)]
    kill = Kill("on_epoch_begin", 4)
    fit_killed(small_model(), batches, [*callbacks, kill], epochs=4)
    os.truncate(path, 100)
    with pytest.warns(UserWarning, match="is not the file that .* describes"):
        fit(small_model(), batches, callbacks, epochs=4)
    assert_kept(path, watch.end[3])


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filepath": "weights"}, "`filepath` must end in .keras or .h5"),
        ({"filepath": "a-{epoch}.keras"}, "`filepath` must be one path"),
        ({"filepath": "a.keras", "save_best_only": False}, "`save_best_only`"),
        ({"filepath": "a.keras", "save_freq": 10}, "`save_freq`"),
    ],
)
def test_what_contradicts_one_best_epoch_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        training.KeepBest(**arguments)


# Compiling with a recipe.


@pytest.fixture(scope="module")
def compiled():
    """A network with a lambda layer, compiled and trained for two steps."""
    arguments = {"stages": ["LL"], "widths": [8], "strides": [1]}
    arguments |= {"share_embeddings": True, "scope": None}
    changes = {"epochs": 1, "model_arguments": arguments}
    recipe = training.resolve("smoke", changes)
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


@pytest.mark.slow
def test_a_compiled_network_is_saved_and_loaded(compiled, tmp_path):
    """All that is compiled is Keras' own."""
    _, pipeline, model, history = compiled
    assert type(model.optimizer) is tf.keras.optimizers.SGD
    assert type(model.loss) is tf.keras.losses.CategoricalCrossentropy
    assert set(history) >= {"loss", "accuracy", "top5_accuracy", "val_loss"}
    assert history["top5_accuracy"][0] >= history["accuracy"][0]
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


@pytest.mark.slow
def test_a_compiled_network_is_analyzed_at_another_size(compiled):
    """As a copy, which the optimizer and the metrics must not prevent."""
    _, _, model, _ = compiled
    at_16 = analyze(model, image_size=16, executed=False)
    at_8 = analyze(model, executed=False)
    assert at_16.total("flops") > 4 * at_8.total("flops")
    assert clone_network(model).count_params() == model.count_params()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_scan_is_evaluated_as_its_images_are(compiled):
    _, pipeline, model, history = compiled
    source = pipeline.images.validation
    columns = zip(*pipeline.scan(source), strict=True)
    images, labels = map(np.concatenate, columns)
    assert len(images) == source.num_images == 143
    # Batches of `evaluation` are filled up: 49 images of weight 0.
    batches = pipeline.evaluation(source).map(lambda *batch: batch[:3])
    padded = model.evaluate(batches, verbose=0)
    logs = model.evaluate(pipeline.scan(source), verbose=0, return_dict=True)
    logits = model.predict_on_batch(images)
    correct = np.argmax(logits, 1) == np.argmax(labels, 1)
    assert logs["accuracy"] == pytest.approx(np.mean(correct))
    assert padded[1] == pytest.approx(np.mean(correct))
    assert logs["loss"] == pytest.approx(history["val_loss"][0], rel=1e-5)
    whole = model.evaluate(images, labels, verbose=0)
    assert logs["loss"] == pytest.approx(whole[0], rel=1e-4)


@pytest.mark.parametrize(
    "number_bad", [pytest.param(0, marks=pytest.mark.thorough), 1, 5]
)
def test_keras_warns_of_a_scan_only_where_a_batch_is_lacking(
    number_bad, tmp_path, rng
):
    """Of three batches of four images, where five of ten are bad."""
    pixels = rng.integers(0, 256, (10, 8, 8, 1), np.uint8)
    files = [tmp_path / f"{number}.png" for number in range(10)]
    for number, (file, each) in enumerate(zip(files, pixels, strict=True)):
        content = tf.io.encode_png(each).numpy()
        file.write_bytes(b"bad" if 0 < number <= number_bad else content)
    source = FileSource([str(file) for file in files], np.arange(10), 1)
    names = [str(label) for label in range(10)]
    images = data.ImageSet.build("x", names, 1, [source, None, source], "x")
    recipe = training.resolve("smoke", {"batch_size": 4})
    pipeline = training.InputPipeline(recipe, images)
    layers = [tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential([tf.keras.Input((8, 8, 1)), *layers])
    training.compile_network(model, recipe, 1)
    kept = [0, *range(1 + number_bad, 10)]
    inputs, labels = pixels[kept].astype("float32"), np.eye(10)[kept]
    expected = model.evaluate(inputs, labels, verbose=0, return_dict=True)
    warns = contextlib.nullcontext()
    if KERAS_3 and number_bad == 5:
        warns = pytest.warns(UserWarning, match="ran out of data")
    for _ in range(2):
        with warns:
            scan = pipeline.scan(source)
            logs = model.evaluate(scan, verbose=0, return_dict=True)
        assert logs == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_accuracy_is_of_images_whatever_their_classes_weigh(compiled):
    recipe, pipeline, model, _ = compiled
    images, labels = next(iter(pipeline.scan(pipeline.images.validation)))
    weights = np.where(np.argmax(labels, 1) < 5, 1.0, 10.0)
    weights[0] = 0.0  # fills up the batch
    expected = model.test_on_batch(images[1:], labels[1:], return_dict=True)
    logs = model.test_on_batch(images, labels, weights, return_dict=True)
    for name in ("accuracy", "top5_accuracy"):
        assert logs[name] == pytest.approx(expected[name])
    assert logs["loss"] != pytest.approx(expected["loss"])


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
