"""Real processes that are stopped and killed, and go on to the same end."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from lambdanet_tf.runs import RunFolder
from lambdanet_tf.training.state import newest_checkpoint
from tests.support.arrays import assert_same
from tests.support.smoke_run import metrics_rows
from tests.support.smoke_run import weights
from tests.training.train_process import Process
from tests.training.train_process import clusters

pytestmark = pytest.mark.slow
TRAIN = pathlib.Path(__file__).parents[2] / "train.py"


@pytest.fixture
def start(tmp_path):
    """Starts runs in a folder, which do not outlive the test."""
    processes = []

    def start_one(folder, flags, **environment):
        command = f"--recipe smoke --run-dir {folder} {flags}".split()
        output = tmp_path / f"output{len(processes)}.txt"
        processes.append(Process(output, *command, **environment))
        return processes[-1]

    yield start_one
    for process in processes:
        process.send(signal.SIGKILL)


def step_of(folder):
    """The step of the newest checkpoint, or -1."""
    path = newest_checkpoint(str(folder / "checkpoints"))
    if not path:
        return -1
    reader = tf.train.load_checkpoint(path)
    text = reader.get_tensor("progress/.ATTRIBUTES/VARIABLE_VALUE")
    return json.loads(text)["step"]


def figures(folder):
    """The lines of metrics.csv without what depends on the clock."""
    rows = metrics_rows(RunFolder(folder))
    for row in rows:
        del row["seconds"], row["images_per_second"]
    return rows


def is_finished(folder):
    return (folder / "run.json").exists() and (
        RunFolder(folder).read().status == "finished"
    )


def test_stopped_and_killed_runs_end_with_the_same_bits(start, tmp_path):
    """One in peace; one gets SIGTERM, SIGKILL as it saves, and one later."""
    flags = "--epochs 5 --checkpoint-steps 7 --deterministic --dropout-rate 0.3"
    peace, war = tmp_path / "peace", tmp_path / "war"
    peaceful = start(peace, flags)

    first = start(war, flags)
    first.wait_for(lambda: step_of(war) >= 14)
    first.send(signal.SIGTERM)
    code, output = first.end()
    assert code == 75, output

    for pause in (0.0, 0.2):
        begun = step_of(war)
        process = start(war, flags)
        process.wait_for(lambda begun=begun: step_of(war) > begun)
        time.sleep(pause)
        process.send(signal.SIGKILL)
        assert process.end()[0] == -signal.SIGKILL
        assert RunFolder(war).read().status == "running"

    code, output = start(war, flags).end()
    assert code == 0, output
    code, output = peaceful.end()
    assert code == 0, output

    assert figures(war) == figures(peace)
    assert_same(weights(RunFolder(war)), weights(RunFolder(peace)))


@pytest.mark.once
def test_a_signal_at_any_moment_ends_with_75_or_the_result(tmp_path, rng):
    """Before TensorFlow is imported, while it is, and in a run."""
    run = tmp_path / "run"
    command = [sys.executable, TRAIN, "--recipe=smoke", f"--run-dir={run}"]
    for moment in (0.3, *rng.uniform(1, 40, 2)):
        process = subprocess.Popen(command)
        time.sleep(moment)
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=600)
        assert code == 75 or (code == 0 and is_finished(run)), moment
    assert subprocess.call(command) == 0
    assert is_finished(run)


@pytest.mark.once
def test_workers_go_on_when_one_was_killed_and_came_back(start, tmp_path, rng):
    """The others end with 75, for a supervisor to start them again."""
    run = tmp_path / "run"
    flags = "--epochs 6 --batch-size 48 --learning-rate 2 --checkpoint-steps 1"
    workers = [start(run, flags, TF_CONFIG=task) for task in clusters(3)]
    workers[0].wait_for(lambda: step_of(run) > 8)
    time.sleep(rng.uniform(0, 1))  # A checkpoint is written at every step.
    workers[-1].send(signal.SIGKILL)
    for code, output in [worker.end() for worker in workers[:-1]]:
        assert code == 75, output
        assert "a machine or a device was lost: " in output
    workers = [start(run, flags, TF_CONFIG=task) for task in clusters(3)]
    ends = [process.end() for process in workers]
    assert [code for code, _ in ends] == [0, 0, 0], ends
    metrics = RunFolder(run).read().metrics
    assert metrics["test_images"] == 359
    assert metrics["device"] == "3 CPUs on 3 machines"
    assert metrics["accuracy"] > 0.9
    wrong = (run / "wrong_images.csv").read_text().count("\n") - 1
    assert wrong == round(359 * (1 - metrics["accuracy"]))  # Of all workers.
    assert [row["epoch"] for row in figures(run)] == [*"123456"]


@pytest.mark.once
def test_a_signal_to_one_worker_stops_all(start, tmp_path):
    run, flags = tmp_path / "run", "--epochs 200 --checkpoint-steps 1"
    processes = [start(run, flags, TF_CONFIG=each) for each in clusters(2)]
    processes[0].wait_for(lambda: step_of(run) > 0)
    processes[1].send(signal.SIGTERM)
    ends = [process.end() for process in processes]
    assert [code for code, _ in ends] == [75, 75], ends
    assert "The chief prints, which is another one." in ends[1][1]
    assert RunFolder(run).read().status == "stopped"
