"""What a checkpoint holds, and which one is restored."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.training import Averages
from lambdanet_tf.training import NotFinite
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.state import check_room
from tests.support.arrays import assert_same

OPTIMIZERS = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: tf.keras.optimizers.Adam(0.1),
    "rmsprop": lambda: tf.keras.optimizers.RMSprop(0.1, momentum=0.9),
    "mixed": lambda: tf.keras.mixed_precision.LossScaleOptimizer(
        tf.keras.optimizers.SGD(0.1, momentum=0.9)
    ),
}


def make_state(units=(5, 5), optimizer="sgd", names=("first", "second")):
    """A small network with two kernels of one shape, and its state."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((5,)),
            tf.keras.layers.Dense(units[0], name=names[0]),
            tf.keras.layers.Dense(units[1], name=names[1]),
            tf.keras.layers.BatchNormalization(name="norm"),
        ]
    )
    return TrainState(model, OPTIMIZERS[optimizer](), Averages(model, 0.9))


def take_step(state):
    variables = state.model.trainable_variables
    ones = [tf.fill(w.shape, 1.0 + i) for i, w in enumerate(variables)]
    state.optimizer.apply_gradients(zip(ones, variables, strict=True))
    state.add(tf.constant([1.0, 2.0, 3.0, 0.0]), 1)
    state.averages.update(state.step)


def arrays(state):
    with state.averages.applied():
        averages = state.model.get_weights()
    slots = [np.asarray(variable) for variable in state.optimizer.variables]
    return [*state.model.get_weights(), *averages, *slots]


def saved(tmp_path, steps=1, **arguments):
    """A state that was saved after some steps, after each one."""
    state = make_state(**arguments)
    for _ in range(steps):
        take_step(state)
        state.save(str(tmp_path))
    return state


def indices(folder):
    return sorted(f for f in os.listdir(folder) if f.endswith(".index"))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
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
    assert (after.step, after.sums) == (2, [1.0, 2.0, 3.0, 0.0])
    assert after.rows == [{"epoch": 1, "loss": 1.5}]
    assert after.best == {"epoch": 1, "score": 0.0, "top": 1.0}
    assert after.best_weights == b"the best"
    assert (after.seconds, after.epoch_seconds) == (4.0, 3.0)
    for state in (before, after):
        take_step(state)
    assert_same(arrays(after), arrays(before))


def test_weights_are_restored_by_name_and_not_by_order(tmp_path):
    """Two kernels of one shape, in another order."""
    before = saved(tmp_path)
    after = make_state(names=("second", "first"))
    after.restore(str(tmp_path))
    for name in ("first", "second"):
        layers = [state.model.get_layer(name) for state in (after, before)]
        assert_same(*[layer.get_weights() for layer in layers])


def test_no_checkpoint_is_no_error(tmp_path):
    assert not make_state().restore(str(tmp_path / "none"))
    assert os.listdir(tmp_path) == []


def test_old_checkpoints_are_removed(tmp_path):
    tmp_path = tmp_path / "[lr=0.1]"
    state = saved(tmp_path, steps=12)
    assert indices(tmp_path) == ["ckpt-11-0.index", "ckpt-12-0.index"]
    state.end_epoch({"epoch": 1}, {})
    state.save(str(tmp_path))
    assert indices(tmp_path) == ["ckpt-12-0.index", "ckpt-12-1.index"]


@pytest.mark.slow
def test_a_worker_removes_no_checkpoint_of_the_chief(tmp_path):
    """All restore from the run's folder; only the chief writes there."""
    saved(tmp_path / "run", steps=2)
    before = sorted(os.listdir(tmp_path / "run"))
    state = make_state()
    assert state.restore(str(tmp_path / "run"))
    own = tmp_path / "own"
    state.save(str(own))
    assert not own.exists()  # The chief does not write this state again.
    for _ in range(3):
        take_step(state)
        state.save(str(own))
    assert sorted(os.listdir(tmp_path / "run")) == before
    assert indices(own) == ["ckpt-4-0.index", "ckpt-5-0.index"]


def change(path):
    content = bytearray(pathlib.Path(path).read_bytes())
    content[len(content) // 2] ^= 255
    pathlib.Path(path).write_bytes(content)


DATA = ".data-00000-of-00001"
DAMAGES = {
    "no index": lambda path: os.remove(f"{path}.index"),
    "cut data": lambda path: os.truncate(path + DATA, 100),
    "empty data": lambda path: os.truncate(path + DATA, 0),
    "empty index": lambda path: os.truncate(f"{path}.index", 0),
    "no data": lambda path: os.remove(path + DATA),
    "changed data": lambda path: change(path + DATA),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_newest_whole_checkpoint_is_restored_and_said(tmp_path, damage):
    saved(tmp_path, steps=2)
    DAMAGES[damage](f"{tmp_path}/ckpt-2-0")
    state, said = make_state(), []
    assert state.restore(str(tmp_path), said.append)
    assert state.step == 1
    (line,) = said
    assert "ckpt-2-0 is damaged" in line
    # The step is taken again, and its checkpoint takes the damaged one's place.
    take_step(state)
    state.save(str(tmp_path))
    again = make_state()
    assert again.restore(str(tmp_path), said.append)
    assert again.step == 2
    assert len(said) == 1


@pytest.mark.parametrize("damage", ["no index", "cut data"])
def test_if_none_is_whole_it_is_an_error(tmp_path, damage):
    saved(tmp_path)
    DAMAGES[damage](f"{tmp_path}/ckpt-1-0")
    with pytest.raises(ValueError, match="No checkpoint in .* is whole"):
        make_state().restore(str(tmp_path), [].append)


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    saved(tmp_path)
    for other in ({"units": (5, 4)}, {"names": ("first", "third")}):
        with pytest.raises(ValueError, match="does not fit this network"):
            make_state(**other).restore(str(tmp_path))


def test_a_checkpoint_of_an_older_version_is_refused(tmp_path):
    variables = [tf.Variable(1.0)]
    tf.train.Checkpoint(weights=variables).write(str(tmp_path / "ckpt-20"))
    with pytest.raises(ValueError, match="of another version of lambdanet_tf"):
        make_state().restore(str(tmp_path))


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    state = saved(tmp_path)
    kernel = state.model.layers[0].kernel
    kernel.assign(tf.fill(kernel.shape, float("nan")))
    state.step = 2
    with pytest.raises(NotFinite, match="by step 2. A lower"):
        state.save(str(tmp_path))
    assert make_state().restore(str(tmp_path))


def test_time_is_counted_where_it_was_used(monkeypatch):
    times = iter([10.0, 10.0, 13.0, 18.0, 19.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    state = make_state()
    for training in (False, True, False, True):
        state.tick(training)
    assert state.seconds == 9.0
    assert state.training_seconds == state.epoch_seconds == 4.0


def test_too_little_room_is_an_error(tmp_path):
    folder = str(tmp_path / "not" / "yet")
    check_room(folder, 1000)
    check_room("gs://bucket/run", 2**60)
    with pytest.raises(OSError, match=r"needs .* MiB .* MiB are free"):
        check_room(folder, 2**60)
    assert os.listdir(tmp_path) == []


def test_of_equally_good_epochs_the_latest_is_the_best():
    state = make_state()
    assert state.is_best({"validation_accuracy": 0.5})
    state.end_epoch({"epoch": 1}, {"validation_accuracy": 0.5}, b"weights")
    assert state.is_best({"validation_accuracy": 0.5})
    assert not state.is_best({"validation_accuracy": 0.4})
