"""What a checkpoint holds, and which one is restored."""

import os

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import training
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.state import check_room
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


def indices(folder):
    return sorted(f for f in os.listdir(folder) if f.endswith(".index"))


@pytest.mark.parametrize("optimizer", ["sgd", "mixed"])
def test_a_checkpoint_brings_everything_back(tmp_path, optimizer):
    before = make_state(optimizer=optimizer)
    take_step(before)
    before.end_epoch({"epoch": 1, "loss": 1.5}, {"top": 1.0}, b"the best")
    take_step(before)
    before.seconds, before.epoch_seconds = 4.0, 3.0
    before.save(str(tmp_path))
    after = make_state(optimizer=optimizer)
    assert after.restore(str(tmp_path))
    assert_same(arrays(after), arrays(before))
    assert (after.step, after.sums) == (2, [1.0, 2.0, 3.0])
    assert after.rows == [{"epoch": 1, "loss": 1.5}]
    assert after.best == {"epoch": 1, "score": 0.0, "top": 1.0}
    assert after.best_weights == b"the best"
    assert (after.seconds, after.epoch_seconds) == (4.0, 3.0)
    for state in (before, after):
        take_step(state)
    assert_same(arrays(after), arrays(before))


def test_old_checkpoints_are_removed(tmp_path):
    tmp_path = tmp_path / "[lr=0.1]"
    state = saved(tmp_path, steps=12)
    assert indices(tmp_path) == ["ckpt-11-0.index", "ckpt-12-0.index"]
    state.end_epoch({"epoch": 1}, {})
    state.save(str(tmp_path))
    assert indices(tmp_path) == ["ckpt-12-0.index", "ckpt-12-1.index"]


DAMAGES = {
    "no index": lambda path: os.remove(f"{path}.index"),
    "cut data": lambda path: os.truncate(f"{path}.data-00000-of-00001", 100),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_newest_whole_checkpoint_is_restored_and_said(tmp_path, damage):
    saved(tmp_path, steps=2)
    DAMAGES[damage](f"{tmp_path}/ckpt-2-0")
    state, said = make_state(), []
    assert state.restore(str(tmp_path), said.append)
    assert state.step == 1
    # The step is taken again, and its checkpoint takes the damaged one's place.
    take_step(state)
    state.save(str(tmp_path))
    again = make_state()
    assert again.restore(str(tmp_path), said.append)
    assert again.step == 2
    (line,) = said
    assert "ckpt-2-0 is damaged" in line


@pytest.mark.parametrize("damage", DAMAGES)
def test_that_none_is_whole_is_said(tmp_path, damage):
    saved(tmp_path)
    DAMAGES[damage](f"{tmp_path}/ckpt-1-0")
    said = []
    assert not make_state().restore(str(tmp_path), said.append)
    assert "ckpt-1-0 is damaged" in said[0]


def test_a_checkpoint_of_another_network_or_version_is_refused(tmp_path):
    """Weights are known by their names, and not by their order."""
    saved(tmp_path)
    with pytest.raises(ValueError, match="does not fit this network"):
        make_state(names=("first", "third")).restore(str(tmp_path))
    variables = [tf.Variable(1.0)]
    tf.train.Checkpoint(weights=variables).write(str(tmp_path / "ckpt-20"))
    with pytest.raises(ValueError, match="of another version of lambdanet_tf"):
        make_state().restore(str(tmp_path))


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    state = saved(tmp_path)
    kernel = state.model.layers[0].kernel
    kernel.assign(tf.fill(kernel.shape, float("nan")))
    state.step = 2
    with pytest.raises(training.NotFinite, match="by step 2. A lower"):
        state.save(str(tmp_path))
    assert make_state().restore(str(tmp_path))


def test_too_little_room_or_no_folder_for_a_checkpoint_is_named(tmp_path):
    folder = str(tmp_path / "not" / "yet")
    check_room(folder, 1000)
    check_room("gs://bucket/run", 2**60)
    with pytest.raises(OSError, match=r"needs .* MiB .* MiB are free"):
        check_room(folder, 2**60)
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Cannot write .*file/ckpt-1-0: "):
        saved(tmp_path / "file")


def test_of_equally_good_epochs_the_latest_is_the_best():
    state = make_state()
    assert state.is_best({"validation_accuracy": 0.5})
    state.end_epoch({"epoch": 1}, {"validation_accuracy": 0.5}, b"weights")
    assert state.is_best({"validation_accuracy": 0.5})
    assert not state.is_best({"validation_accuracy": 0.4})
