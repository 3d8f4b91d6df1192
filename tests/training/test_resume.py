"""Real processes that are stopped and killed, and go on to the same end."""

import random
import signal
import time

import numpy as np
import pytest

from lambdanet_tf.models.weights import RUN_WEIGHTS
from lambdanet_tf.runs import RunFolder
from tests.support.smoke_run import metrics_rows
from tests.support.train_process import Process
from tests.support.train_process import clusters


@pytest.fixture
def start(tmp_path):
    """Starts processes that do not outlive the test."""
    processes = []

    def start_one(*arguments, **environment):
        output = tmp_path / f"output{len(processes)}.txt"
        processes.append(Process(output, *arguments, **environment))
        return processes[-1]

    yield start_one
    for process in processes:
        process.send(signal.SIGKILL)


def step_of(folder):
    """The step of the newest checkpoint, or -1."""
    files = folder.glob("checkpoints/ckpt-*.index")
    steps = [int(f.name.split("-")[1].split(".")[0]) for f in files]
    return max(steps, default=-1)


def figures(folder):
    """The lines of metrics.csv without what depends on the clock."""
    rows = metrics_rows(RunFolder(folder))
    for row in rows:
        del row["seconds"], row["images_per_second"]
    return rows


def status(folder):
    return RunFolder(folder).read().status


@pytest.mark.slow
def test_stopped_and_killed_runs_end_with_the_same_bits(start, tmp_path):
    """One run in peace; one that gets SIGTERM, then SIGKILL somewhere."""
    chance = random.Random(2102)
    command = ["--recipe", "smoke", "--epochs", "5", "--checkpoint-steps", "7",
               "--deterministic", "--dropout-rate", "0.3"]  # fmt: skip
    peace, war = tmp_path / "peace", tmp_path / "war"
    peaceful = start(*command, "--run-dir", str(peace))

    first = start(*command, "--run-dir", str(war))
    first.wait_for(lambda: step_of(war) >= chance.randrange(7, 30))
    first.send(signal.SIGTERM)
    code, output = first.end()
    assert code == 75, output
    assert "Stopped by a signal at step" in output
    stopped_at = step_of(war)

    second = start(*command, "--run-dir", str(war))
    second.wait_for(lambda: step_of(war) > stopped_at)
    time.sleep(chance.random() / 2)
    second.send(signal.SIGKILL)
    assert second.end()[0] == -signal.SIGKILL
    assert status(war) == "running"

    code, output = start(*command, "--run-dir", str(war), "--resume").end()
    assert code == 0, output
    assert "Resuming at step" in output
    code, output = peaceful.end()
    assert code == 0, output

    assert figures(war) == figures(peace)
    actual, expected = np.load(war / RUN_WEIGHTS), np.load(peace / RUN_WEIGHTS)
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(actual[name], values, err_msg=name)


@pytest.mark.once
@pytest.mark.slow
def test_workers_go_on_when_one_was_killed_and_came_back(start, tmp_path):
    """The others end with 75, for a supervisor to start them again."""
    number = 3
    run = tmp_path / "run"
    command = ["--recipe", "smoke", "--epochs", "6", "--batch-size", "48",
               "--learning-rate", "2", "--run-dir", str(run)]  # fmt: skip
    configs = clusters(number)
    processes = [start(*command, TF_CONFIG=config) for config in configs]
    processes[0].wait_for(lambda: step_of(run) > 26)
    processes[-1].send(signal.SIGKILL)
    assert processes[-1].end()[0] == -signal.SIGKILL
    ends = [process.end() for process in processes[:-1]]
    assert [code for code, _ in ends] == [75] * (number - 1), ends
    assert "a machine or a device was lost: " in ends[0][1]
    assert f"The same command resumes {run}." in ends[0][1]
    processes = [start(*command, TF_CONFIG=config) for config in configs]
    ends = [process.end() for process in processes]
    assert [code for code, _ in ends] == [0] * number, ends
    assert "Resuming at step" in ends[0][1]
    assert status(run) == "finished"
    metrics = RunFolder(run).read().metrics
    assert metrics["test_images"] == 359
    assert metrics["device"] == f"{number} CPU replicas on {number} machines"
    assert metrics["accuracy"] > 0.9
    assert [row["epoch"] for row in figures(run)] == [*"123456"]


@pytest.mark.once
@pytest.mark.slow
def test_a_signal_to_one_worker_stops_all(start, tmp_path):
    run = tmp_path / "run"
    command = ["--recipe", "smoke", "--epochs", "200", "--checkpoint-steps",
               "1", "--run-dir", str(run)]  # fmt: skip
    processes = [start(*command, TF_CONFIG=config) for config in clusters(2)]
    processes[0].wait_for(lambda: step_of(run) > 0)
    processes[1].send(signal.SIGTERM)
    ends = [process.end() for process in processes]
    assert [code for code, _ in ends] == [75, 75], ends
    assert status(run) == "stopped"
