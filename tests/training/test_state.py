"""What a checkpoint holds, and which one is restored."""

import os

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import training
from lambdanet_tf.arguments import UserError
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.state import newest_checkpoint
from tests.support.arrays import assert_same


def make_state(optimizer="sgd", names=("first", "second")):
    """A small network with two kernels of one shape, and its state."""
    rule = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    if optimizer == "mixed":
        rule = tf.keras.mixed_precision.LossScaleOptimizer(rule)
    layers = [tf.keras.layers.Dense(5, name=name) for name in names]
    norm = tf.keras.layers.BatchNormalization(name="norm")
    model = tf.keras.Sequential([tf.keras.Input((5,)), *layers, norm])
    return TrainState(model, rule, training.Averages(model, 0.9))


def take_step(state):
    variables = state.model.trainable_variables
    ones = [tf.fill(w.shape, 1.0 + i) for i, w in enumerate(variables)]
    state.optimizer.apply_gradients(zip(ones, variables, strict=True))
    state.add(tf.constant([1.0, 2.0, 3.0]), 1)
    state.averages.update(state.step)


def arrays(state):
    with state.averages.applied():
        averages = state.model.get_weights()
    slots = [np.asarray(variable) for variable in state.optimizer.variables]
    return [*state.model.get_weights(), *averages, *slots]


def saved(tmp_path, steps=1):
    """A state that was saved after some steps, after each one."""
    state = make_state()
    for _ in range(steps):
        take_step(state)
        state.save(str(tmp_path))
    return state


@pytest.mark.parametrize("optimizer", ["sgd", "mixed"])
def test_a_checkpoint_brings_everything_back(tmp_path, optimizer):
    before = make_state(optimizer=optimizer)
    take_step(before)
    before.end_epoch({"epoch": 1, "loss": 1.5}, b"the best")
    take_step(before)
    before.seconds, before.epoch_seconds = 4.0, 3.0
    before.save(str(tmp_path))
    after = make_state(optimizer=optimizer)
    after.restore(newest_checkpoint(str(tmp_path)))
    assert_same(arrays(after), arrays(before))
    assert (after.step, [*after.sums]) == (2, [1.0, 2.0, 3.0])
    assert after.rows == [after.best] == [{"epoch": 1, "loss": 1.5}]
    assert after.best_weights == b"the best"
    assert (after.seconds, after.epoch_seconds) == (4.0, 3.0)
    for state in (before, after):
        take_step(state)
    assert_same(arrays(after), arrays(before))


def test_old_checkpoints_are_removed_and_the_newest_is_found(tmp_path):
    """Also in a folder that was moved since."""
    state = saved(tmp_path / "a", steps=12)
    state.end_epoch({"epoch": 1})
    state.save(str(tmp_path / "a"))
    kept = sorted(path.name for path in (tmp_path / "a").glob("*.index"))
    assert kept == ["ckpt-12.index", "ckpt-13.index"]
    moved = str((tmp_path / "a").rename(tmp_path / "b"))
    again = make_state()
    again.restore(newest_checkpoint(moved))
    assert (again.step, len(again.rows)) == (12, 1)
    take_step(again)
    again.save(moved)
    assert newest_checkpoint(moved) == f"{moved}/ckpt-14"
    assert newest_checkpoint(str(tmp_path)) == ""


DAMAGES = {
    "no index": lambda path: os.remove(f"{path}.index"),
    "cut index": lambda path: os.truncate(f"{path}.index", 100),
    "cut data": lambda path: os.truncate(f"{path}.data-00000-of-00001", 100),
    "another network": lambda path: None,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path, damage):
    """Weights are known by their names, and not by their order."""
    saved(tmp_path)
    DAMAGES[damage](f"{tmp_path}/ckpt-1")
    names = ("first", "third" if damage == "another network" else "second")
    with pytest.raises(UserError, match="ckpt-1 cannot be read"):
        make_state(names=names).restore(newest_checkpoint(str(tmp_path)))


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    state = saved(tmp_path)
    kernel = state.model.layers[0].kernel
    kernel.assign(tf.fill(kernel.shape, float("nan")))
    state.step = 2
    with pytest.raises(training.NotFinite, match="by step 2. A lower"):
        state.save(str(tmp_path))
    make_state().restore(newest_checkpoint(str(tmp_path)))


def test_of_equally_good_epochs_the_latest_is_the_best():
    state = make_state()
    assert state.is_best({"validation_accuracy": 0.5})
    state.end_epoch({"epoch": 1, "validation_accuracy": 0.5}, b"weights")
    assert state.is_best({"validation_accuracy": 0.5})
    assert not state.is_best({"validation_accuracy": 0.4})
