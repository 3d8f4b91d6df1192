"""`model.fit` with our callbacks does what `train` does."""

import csv
import json
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import serving
from lambdanet_tf import training
from lambdanet_tf.serving import run_folder
from lambdanet_tf.training.losses import cross_entropy

RECIPE = {"epochs": 3, "batch_size": 128, "dropout": 0.3}


def silent(text):
    del text


class Notebook:
    """What somebody has after the first cells."""

    def __init__(self, folder, strategy=None, **changes):
        self.recipe = training.resolve("smoke", {**RECIPE, **changes})
        self.inputs = training.Inputs(self.recipe, data.load_digits(), strategy)
        with self.inputs.strategy.scope():
            self.model = training.recipe_network(
                self.recipe, self.inputs.images
            )
            training.compile_network(
                self.model, self.recipe, self.inputs.steps_per_epoch
            )
        self.keeper = training.KeepRun(folder, self.inputs, say=silent)

    def fit(self, *callbacks):
        arguments = self.keeper.fit_arguments(self.model)
        arguments["callbacks"] = [*callbacks, *arguments["callbacks"]]
        return self.model.fit(**arguments)


class AtStep(tf.keras.callbacks.Callback):
    """Does something when the optimiser has taken so many steps."""

    def __init__(self, step, action):
        super().__init__()
        self._step, self._action = step, action

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self._step:
            self._action()


class KilledError(Exception):
    """In the place of a kill: nothing of ours runs any more."""


def kill():
    raise KilledError


def figures(folder):
    """metrics.csv without what depends on the clock."""
    with open(folder / "metrics.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return [
        {k: float(v) for k, v in row.items() if "second" not in k}
        for row in rows
    ]


def assert_same_figures(folder, other):
    for now, then in zip(figures(folder), figures(other), strict=True):
        assert now == pytest.approx(then, rel=1e-3, abs=1e-3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The run of `train`."""
    path = tmp_path_factory.mktemp("trained") / "run"
    recipe = training.resolve("smoke", RECIPE)
    training.train(recipe, training.RunOptions(run=str(path)), say=silent)
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A run of `model.fit` with its notebook and history."""
    path = tmp_path_factory.mktemp("fitted") / "run"
    notebook = Notebook(path)
    history = notebook.fit()
    return path, notebook, history.history


def test_fit_learns_what_train_learns(trained, fitted):
    path, notebook, _ = fitted
    assert_same_figures(path, trained)
    weights = run_folder.read_run(path).model().get_weights()
    expected = run_folder.read_run(trained).model().get_weights()
    for now, then in zip(weights, expected, strict=True):
        np.testing.assert_allclose(now, then, rtol=1e-3, atol=1e-4)
    for now, then in zip(notebook.model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(now, then)


def test_fit_leaves_what_train_leaves(trained, fitted):
    path, _, _ = fitted
    assert set(os.listdir(path)) == set(os.listdir(trained))
    record = json.loads((path / "run.json").read_text())
    expected = json.loads((trained / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["command"] == "model.fit"
    for name in ("model", "recipe", "classes", "image", "versions"):
        assert record[name] == expected[name]
    assert set(record["metrics"]) == set(expected["metrics"])


def test_two_replicas_fit_what_one_device_fits(tmp_path, two_replicas):
    weights = []
    for name, strategy in (("one", None), ("two", two_replicas)):
        changes = {"epochs": 1, "dropout": 0.0}
        notebook = Notebook(tmp_path / name, strategy, **changes)
        notebook.fit()
        weights.append(notebook.model.get_weights())
    for one, two in zip(*weights, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-3, atol=2e-3)


def test_the_history_has_the_validation(fitted):
    path, _, history = fitted
    for name in ("loss", "accuracy", "validation_loss", "validation_accuracy"):
        rows = [row[name] for row in figures(path)]
        assert history[name] == pytest.approx(rows, rel=1e-5)
    assert min(history["images_per_second"]) > 0


def test_the_folder_can_be_exported(fitted, tmp_path):
    path, notebook, _ = fitted
    run = run_folder.read_run(path)
    run_folder.require_finished(run)
    folder = serving.export_run(run, tmp_path / "exported")
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    images, _ = run_folder.read_examples(run)
    name = next(iter(served.structured_input_signature[1]))
    outputs = served(**{name: tf.constant(images)})
    logits = notebook.model(images, training=False)
    np.testing.assert_allclose(
        outputs["probabilities"], tf.nn.softmax(logits), rtol=1e-4, atol=1e-5
    )


def test_a_killed_fit_goes_on_to_the_same_end(fitted, tmp_path):
    path, _, _ = fitted
    with pytest.raises(KilledError):
        Notebook(tmp_path / "run").fit(AtStep(15, kill))
    again = Notebook(tmp_path / "run")
    assert again.keeper.resume(again.model) == 1
    again.fit()
    assert again.keeper.folder.read_record()["status"] == "finished"
    assert_same_figures(tmp_path / "run", path)


@pytest.mark.parametrize(("step", "epochs"), [(15, 1), (20, 2)])
def test_a_signal_stops_at_the_last_epoch_that_is_complete(
    tmp_path, step, epochs
):
    before = signal.getsignal(signal.SIGTERM)
    interrupt = AtStep(step, lambda: os.kill(os.getpid(), signal.SIGTERM))
    notebook = Notebook(tmp_path / "run")
    with pytest.raises(training.Stopped, match=f"at step {step}"):
        notebook.fit(interrupt)
    assert signal.getsignal(signal.SIGTERM) == before
    assert notebook.keeper.folder.read_record()["status"] == "stopped"
    assert notebook.keeper.resume(notebook.model) == epochs
    assert int(notebook.model.optimizer.iterations) == 10 * epochs


def test_a_loss_that_is_no_number_names_the_good_weights(tmp_path):
    notebook = Notebook(tmp_path / "run")

    def spoil():
        weight = notebook.model.trainable_weights[0]
        weight.assign(np.nan * np.ones(weight.shape))

    with pytest.raises(training.NotFinite, match=r"of epoch 1, are in .*best"):
        notebook.fit(AtStep(13, spoil))
    record = training.RunFolder(tmp_path / "run").read_record()
    assert record["status"] == "failed"
    model = run_folder.read_run(tmp_path / "run").model()
    assert all(np.all(np.isfinite(w)) for w in model.get_weights())
    with pytest.raises(ValueError, match="would fail again"):
        training.KeepRun(tmp_path / "run", notebook.inputs)


def test_a_finished_run_stays_as_it_is(fitted):
    path, notebook, _ = fitted
    before = notebook.keeper.folder.read_record()["metrics"]
    again = Notebook(path)
    again.fit()
    after = again.keeper.folder.read_record()["metrics"]
    assert after["accuracy"] == before["accuracy"]
    assert after["best_epoch"] == before["best_epoch"]
    for now, then in zip(
        again.model.get_weights(), notebook.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(now, then)


def test_a_trained_model_without_a_checkpoint_is_refused(fitted, tmp_path):
    _, notebook, _ = fitted
    keeper = training.KeepRun(tmp_path / "other", notebook.inputs, say=silent)
    with pytest.raises(ValueError, match="has taken 30 steps, and .* holds 0"):
        keeper.resume(notebook.model)


def test_another_recipe_is_refused(fitted):
    path, notebook, _ = fitted
    recipe = training.resolve("smoke", {**RECIPE, "momentum": 0.8})
    inputs = training.Inputs(recipe, notebook.inputs.images)
    with pytest.raises(ValueError, match=r"momentum is 0\.9, not 0\.8"):
        training.KeepRun(path, inputs)


def test_another_model_is_refused(fitted, tmp_path):
    _, notebook, _ = fitted
    other = training.resolve("smoke", {**RECIPE, "model_arguments": {}})
    model = training.recipe_network(other, notebook.inputs.images)
    training.compile_network(model, other, 10)
    keeper = training.KeepRun(tmp_path / "run", notebook.inputs)
    with pytest.raises(ValueError, match="must be the recipe's"):
        keeper.resume(model)


def test_a_wrong_first_epoch_is_refused(fitted):
    _, notebook, _ = fitted
    arguments = notebook.keeper.fit_arguments(notebook.model)
    assert arguments["initial_epoch"] == 3
    with pytest.raises(ValueError, match="`initial_epoch` must be 3"):
        notebook.model.fit(**{**arguments, "initial_epoch": 0})


@pytest.mark.parametrize("make", [training.UseAverages, None])
def test_another_optimizer_is_refused(fitted, tmp_path, make):
    _, notebook, _ = fitted
    callback = make() if make else training.KeepRun(tmp_path, notebook.inputs)
    model = training.recipe_network(notebook.recipe, notebook.inputs.images)
    model.compile("sgd", training.recipe_loss(notebook.recipe))
    data = (np.zeros([2, 8, 8, 1], "float32"), np.zeros([2], "int32"))
    with pytest.raises(ValueError, match="must be compiled with a `RecipeOpt"):
        model.fit(*data, callbacks=[callback], verbose=0)


# Averages alone, without a run folder.


class Watch(tf.keras.callbacks.Callback):
    """Notes a weight in and after the validations."""

    def __init__(self):
        super().__init__()
        self.during, self.after = [], []

    def _weight(self):
        return np.array(self.model.trainable_weights[0])

    def on_test_batch_end(self, batch, logs=None):
        self.during.append(self._weight())

    def on_epoch_end(self, epoch, logs=None):
        self.after.append(self._weight())


def averages_of(optimizer):
    return np.array(optimizer._averages[0])


@pytest.fixture
def small():
    """A compiled model and two batches."""
    recipe = training.resolve("smoke", {"batch_size": 4})
    model = training.recipe_network(recipe, data.load_digits())
    training.compile_network(model, recipe, 2)
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, [8, 8, 8, 1]).astype("float32")
    labels = np.arange(8, dtype="int32")
    return model, (images, labels)


def test_validation_uses_the_averages_and_gives_the_weights_back(small):
    model, batches = small
    watch = Watch()
    model.fit(
        *batches,
        batch_size=4,
        epochs=2,
        validation_data=batches,
        callbacks=[training.UseAverages(), watch],
        verbose=0,
    )
    assert not np.allclose(watch.during[0], watch.after[0])
    # The second epoch went on from the weights, not from the averages: what
    # the optimiser now has as averages are the weights.
    np.testing.assert_array_equal(averages_of(model.optimizer), watch.after[1])
    np.testing.assert_array_equal(
        np.array(model.trainable_weights[0]), watch.during[-1]
    )


def test_a_validation_that_breaks_leaves_no_averages_behind(small):
    model, batches = small
    callback = training.UseAverages()

    class Break(tf.keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            raise KilledError

    arguments = {"batch_size": 4, "validation_data": batches, "verbose": 0}
    with pytest.raises(KilledError):
        model.fit(*batches, callbacks=[callback, Break()], **arguments)
    weights = averages_of(model.optimizer)  # They are swapped.
    watch = Watch()

    class First(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 0:
                watch.first = np.array(self.model.trainable_weights[0])

    another = training.UseAverages()
    model.fit(*batches, callbacks=[another, First()], **arguments)
    np.testing.assert_array_equal(watch.first, weights)


# The loss and the metrics.


def test_the_loss_smooths_class_indices(rng):
    logits = tf.constant(rng.normal(size=(6, 5)).astype("float32"))
    labels = tf.constant([0, 1, 2, 3, 4, 0])
    expected = np.mean(cross_entropy(labels, logits, 0.1))
    loss = training.SmoothedCrossEntropy(0.1)
    for given in (labels, labels[:, tf.newaxis], tf.one_hot(labels, 5)):
        np.testing.assert_allclose(loss(given, logits), expected, rtol=1e-6)
    copy = training.SmoothedCrossEntropy.from_config(loss.get_config())
    np.testing.assert_allclose(copy(labels, logits), expected, rtol=1e-6)


def test_the_metrics_count_right_answers():
    top1, top5 = training.recipe_metrics()
    logits = tf.constant([[5.0, 4, 3, 2, 1, 0]] * 4)
    for metric, expected in ((top1, 0.25), (top5, 0.75)):
        metric.update_state(tf.constant([0, 1, 4, 5]), logits)
        assert float(metric.result()) == expected


def test_float16_is_refused():
    recipe = training.resolve("smoke", {"precision": "mixed_float16"})
    model = training.recipe_network(recipe, data.load_digits())
    with pytest.raises(ValueError, match="`precision` must be"):
        training.compile_network(model, recipe, 10)
