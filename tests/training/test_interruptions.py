"""Runs that are stopped, damaged or extended lose nothing."""

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.training import RunFolder
from lambdanet_tf.training import Stopped
from lambdanet_tf.training import devices
from lambdanet_tf.training import loop
from lambdanet_tf.training import pictures
from lambdanet_tf.training import steps
from lambdanet_tf.training.devices import is_lost
from tests.support.smoke_run import assert_same_end
from tests.support.smoke_run import metrics_rows
from tests.support.smoke_run import run_smoke
from tests.support.smoke_run import weights

STEPS = 20  # of an epoch


@pytest.fixture
def copied_run(finished_run, tmp_path):
    """A copy of the finished run, which may be written to."""
    shutil.copytree(finished_run.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def send_at(calls):
    """Returns a decorator that sends SIGTERM in a function's n-th call.

    The list `calls` is given a value for each call.
    """

    def decorate(number, function):
        def call(*arguments):
            result = function(*arguments)
            calls.append(1)
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGTERM)
            return result

        return call

    return decorate


def with_calls(monkeypatch, place, name, decorate):
    """Decorates what a function that makes steps returns."""
    make = getattr(place, name)
    monkeypatch.setattr(place, name, lambda *a: decorate(make(*a)))


# Signals.


@pytest.mark.slow
@pytest.mark.once
def test_a_stop_in_validation_waits_for_one_batch(
    finished_run, tmp_path, monkeypatch
):
    """The state of before is saved, and validated again."""
    with monkeypatch.context() as patch:
        calls = []
        send = send_at(calls)
        with_calls(patch, steps, "evaluation_step", lambda f: send(2, f))
        with pytest.raises(Stopped, match=f"at step {STEPS}. Resume with"):
            run_smoke(tmp_path)
        assert len(calls) == 2
    folder = RunFolder(tmp_path / "run")
    assert folder.read().status == "stopped"
    assert folder.exists(f"checkpoints/ckpt-{STEPS}-0.index")
    assert not folder.exists("metrics.csv")
    assert_same_end(run_smoke(tmp_path), finished_run)


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.once
@pytest.mark.parametrize("phase", ["test", "report"])
def test_a_stop_at_the_end_keeps_what_there_is(
    finished_run, copied_run, tmp_path, monkeypatch, phase
):
    before = copied_run.read().metrics
    with monkeypatch.context() as patch:
        calls = []
        send = send_at(calls)
        if phase == "test":
            with_calls(patch, steps, "evaluation_step", lambda f: send(2, f))
        else:
            curves = send(1, pictures.learning_curves)
            patch.setattr(pictures, "learning_curves", curves)
        with pytest.raises(Stopped, match=r"at step 40\. Resume with"):
            run_smoke(tmp_path, draws=phase == "report")
        assert len(calls) == (2 if phase == "test" else 1)
    assert copied_run.read().status == "stopped"
    assert copied_run.read().metrics == before
    assert_same_end(run_smoke(tmp_path), finished_run)
    assert copied_run.read().status == "finished"


def test_a_stop_before_the_first_step_is_obeyed_at_once(tmp_path, monkeypatch):
    def network(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        raise AssertionError("the signal was only noted")

    monkeypatch.setattr(loop, "recipe_network", network)
    with pytest.raises(Stopped):
        run_smoke(tmp_path)


@pytest.mark.once
@pytest.mark.thorough
def test_rates_are_true_with_checkpoints_and_after_a_stop(
    finished_run, tmp_path, monkeypatch
):
    """Steps of 20 ms, 64 images each: at most 3,200 images a second.

    Stopped where a strategy takes the signals, as one of several workers does.
    """

    def slow(function):
        def call(*arguments):
            time.sleep(0.02)
            return function(*arguments)

        return call

    def take(create):
        def call(*arguments):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            return create(*arguments)

        return call

    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "create_strategy", take(loop.create_strategy))
        send = send_at([])
        with_calls(patch, loop, "training_step", lambda f: send(10, slow(f)))
        with pytest.raises(Stopped, match="at step 10"):
            run_smoke(tmp_path)
    assert signal.getsignal(signal.SIGTERM) == before
    with_calls(monkeypatch, loop, "training_step", slow)
    folder = run_smoke(tmp_path, {"checkpoint_steps": 4})
    rates = [float(row["images_per_second"]) for row in metrics_rows(folder)]
    assert len(rates) == 2
    assert max(*rates, folder.read().metrics["images_per_second"]) < 3_200
    assert_same_end(folder, finished_run)


@pytest.mark.once
@pytest.mark.thorough
def test_rates_leave_out_what_a_callback_takes(tmp_path, monkeypatch):
    """By a clock that jumps a million seconds at the end of each epoch."""
    clock, jumps = time.perf_counter, []
    monkeypatch.setattr("time.perf_counter", lambda: clock() + sum(jumps))
    folder = run_smoke(tmp_path, on_epoch=lambda *_: jumps.append(1e6))
    assert len(jumps) == 2
    rates = [float(row["images_per_second"]) for row in metrics_rows(folder)]
    metrics = folder.read().metrics
    assert min(*rates, metrics["images_per_second"]) > 0.01
    assert metrics["seconds"] > sum(jumps)


class KilledError(Exception):
    pass


@pytest.mark.slow
@pytest.mark.once
def test_a_run_killed_before_a_checkpoint_is_due_comes_back(
    finished_run, tmp_path, monkeypatch
):
    """There is a checkpoint before there are weights to lose."""

    def kill(folder, *arguments):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_metrics", kill)  # after the weights
        with pytest.raises(KilledError):
            run_smoke(tmp_path, {"checkpoint_epochs": 5})
    assert RunFolder(tmp_path / "run").exists("best.weights.npz")
    folder = run_smoke(tmp_path, {"checkpoint_epochs": 5})
    assert_same_end(folder, finished_run)


# A lost TPU or worker.


def raising(error):
    """Returns a decorator: the function raises an error in its place."""

    def decorate(function):
        def call(*arguments):
            raise error

        return call

    return decorate


@pytest.mark.once
@pytest.mark.parametrize("place", ["data", "step"])
def test_a_lost_device_ends_a_run_that_can_be_resumed(
    tmp_path, monkeypatch, place
):
    lost = tf.errors.UnavailableError(None, None, "Socket closed\nDetails")
    if place == "step":
        with_calls(monkeypatch, loop, "training_step", raising(lost))
    else:
        monkeypatch.setattr(loop, "InputPipeline", raising(lost)(None))
    with pytest.raises(Stopped, match="lost: Socket closed\nThe same"):
        run_smoke(tmp_path)
    folder = RunFolder(tmp_path / "run")
    assert folder.exists() == (place == "step")
    assert not folder.exists() or folder.read().status == "stopped"
    assert not folder.exists("checkpoints")


@pytest.mark.thorough
@pytest.mark.once
def test_a_fault_is_not_taken_for_a_lost_device(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "number_of_workers", lambda: 2)
    fault = tf.errors.InternalError(None, None, "A kernel failed")
    with_calls(monkeypatch, loop, "training_step", raising(fault))
    with pytest.raises(tf.errors.InternalError):
        run_smoke(tmp_path, {"strategy": "default"})
    assert RunFolder(tmp_path / "run").read().status == "running"


COLLECTIVE = "Graph execution error:\n\nCollective ops is aborted by: gone"


@pytest.mark.once
@pytest.mark.parametrize(
    ("kind", "message", "workers", "lost"),
    [
        ("UnavailableError", "Socket closed", 0, True),
        ("UnavailableError", COLLECTIVE, 2, True),
        ("AbortedError", "", 0, True),
        ("CancelledError", "", 0, False),
        ("CancelledError", "", 2, True),
        ("DeadlineExceededError", "", 2, True),
        ("InternalError", "A kernel failed", 2, False),
        ("InternalError", COLLECTIVE, 2, True),
        ("InternalError", COLLECTIVE, 0, False),
        ("UnknownError", "", 2, False),
        ("FailedPreconditionError", "", 2, False),
        ("FailedPreconditionError", "the current incarnation is", 2, True),
        ("InvalidArgumentError", "shapes", 2, False),
        ("NotFoundError", "a file", 2, False),
        ("ResourceExhaustedError", "", 2, False),
    ],
)
def test_which_errors_say_that_a_worker_is_lost(
    monkeypatch, kind, message, workers, lost
):
    monkeypatch.setattr(devices, "number_of_workers", lambda: workers)
    error = getattr(tf.errors, kind)(None, None, message)
    assert is_lost(error) == lost


@pytest.mark.slow
@pytest.mark.once
def test_only_the_chief_leaves_files(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "is_chief", lambda: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = run_smoke(tmp_path, epochs=1)
    assert not tf.io.gfile.exists(folder.path)
    # TensorFlow itself writes what it converts, until the process ends.
    assert set(tmp_path.iterdir()) == set(tmp_path.glob("__autograph*"))


# The end of a run.


@pytest.mark.thorough
@pytest.mark.once
def test_broken_pictures_cost_the_pictures_alone(
    copied_run, tmp_path, monkeypatch
):
    def broken(*arguments):
        raise ImportError("numpy.core.multiarray failed to import")

    monkeypatch.setattr(pictures, "learning_curves", broken)
    for name in ("report.md", "curves.png", "examples.npz"):
        os.remove(copied_run.file(name))
    said = []
    run_smoke(tmp_path, say=said.append, draws=True)
    assert "The pictures could not be drawn: numpy.core" in "\n".join(said)
    assert copied_run.read().status == "finished"
    assert copied_run.read().read_examples() is not None
    assert copied_run.exists("report.md")
    assert not copied_run.exists("curves.png")


@pytest.mark.slow
@pytest.mark.once
def test_a_run_without_its_checkpoints_is_not_begun_again(copied_run, tmp_path):
    shutil.rmtree(copied_run.file("checkpoints"))
    before = weights(copied_run)
    with pytest.raises(ValueError, match="has weights but no checkpoint"):
        run_smoke(tmp_path, epochs=3)
    for now, then in zip(weights(copied_run), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert copied_run.read().status == "finished"


@contextlib.contextmanager
def settings_left_alone():
    """The settings of the caller are to be as they were."""
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    yield
    drawn = random.random(), np.random.uniform()  # noqa: NPY002
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    assert drawn == (random.random(), np.random.uniform())  # noqa: NPY002
    policy = tf.keras.mixed_precision.global_policy()
    assert policy.name == "mixed_bfloat16"
    assert not devices.config.is_op_determinism_enabled()


@pytest.mark.slow
@pytest.mark.once
def test_the_best_weights_are_those_of_the_checkpoint(copied_run, tmp_path):
    """Whatever a process that was killed wrote after it."""
    before = weights(copied_run)
    os.remove(copied_run.file("best.weights.npz"))
    with settings_left_alone():
        run_smoke(tmp_path, {"deterministic": True})
    for now, then in zip(weights(copied_run), before, strict=True):
        np.testing.assert_array_equal(now, then)


def draws():
    """What a caller draws, of all generators that there are."""
    layer, ones = tf.keras.layers.Dense(3), tf.ones([100])
    layer.build((None, 4))
    numbers = tf.data.Dataset.range(100).shuffle(100)
    dropped = tf.keras.layers.Dropout(0.5)(ones, training=True)
    drawn = [layer.kernel, tf.random.uniform([3]), dropped]
    if KERAS_3:
        drawn.append(tf.keras.random.uniform([3]))
    values = [np.asarray(values).tolist() for values in drawn]
    random_numbers = random.random(), np.random.uniform()  # noqa: NPY002
    return [*values, [*numbers.as_numpy_iterator()], random_numbers]


@pytest.mark.parametrize("seed", [3, None])
def test_the_callers_draws_go_on_as_they_would_have(seed):
    """Else each trial of a random search would be the same."""
    found = []
    for is_between in (False, True, True):
        tf.keras.utils.set_random_seed(3)
        if seed is None:
            tf.random.set_seed(None)
        draws()
        if is_between:
            with devices.callers_state_restored():
                tf.keras.utils.set_random_seed(5)
                draws()
        found.append(draws())
    if seed is None:  # TensorFlow draws by chance; Keras as it was told.
        tensors = [np.concatenate([d[1], d[2], d[-2]]) for d in found]
        assert not np.array_equal(tensors[0], tensors[1])
        assert not np.array_equal(tensors[1], tensors[2])
    else:
        assert found[1:] == found[:1] * 2


@pytest.mark.once
def test_a_failed_start_leaves_the_settings_alone(tmp_path):
    with (
        settings_left_alone(),
        pytest.raises(ValueError, match="1300 for 1295 images"),
    ):
        run_smoke(tmp_path, {"deterministic": True}, batch_size=1300)
