"""Benchmarks of layers: that they run and append, and how they compute."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from benchmarks import records
from benchmarks.layers import attention
from benchmarks.layers import growth
from benchmarks.layers import regret
from benchmarks.layers import rounding
from benchmarks.layers import speed
from benchmarks.layers import versions
from lambdanet_tf.environment import KERAS_3

LEAST = ["--seconds", "0", "--results"]


@pytest.mark.slow
@pytest.mark.once
def test_times_of_layers_are_appended(tmp_path, monkeypatch):
    line = speed.Line((3, 3), 16, 3, 1)
    monkeypatch.setattr(speed, "LINES", (line,))
    three = ["auto", "einsum", "conv2d"]
    assert {*three} <= {*line.algorithms()}
    monkeypatch.setattr(speed.Line, "algorithms", lambda _: three)
    monkeypatch.setattr(speed, "matrix_rate", lambda: 1e11)
    monkeypatch.setattr(speed.timing, "in_child", lambda *_: 5.0)
    for arguments in ([], [], ["--again"]):
        speed.main([*LEAST, str(tmp_path), *arguments])
    found = records.read("layers", tmp_path)
    phases = [row["case"]["phase"] for row in found]
    assert phases == ["forward", "training"] * 2
    assert all(len(taken) == 3 for taken in found[0]["seconds"].values())
    assert {*three} == found[0]["seconds"].keys()
    assert found[1]["mebibytes"] == {"auto": 5.0, "einsum": 5.0}


@pytest.mark.slow
@pytest.mark.once
def test_growth_and_choices_are_appended(tmp_path, monkeypatch):
    curve = [(n, speed.Line((n,), 8, None, 1)) for n in (4, 6)]
    monkeypatch.setattr(growth, "CURVES", {"length": curve})
    growth.main([*LEAST, str(tmp_path)])
    *choices, first, last = records.read("growth", tmp_path)
    assert [row["case"]["filters"] for row in choices] == [64, 256]
    assert len(choices[0]["value"]) == len(growth.SCOPES)
    assert (first["case"]["at"], last["case"]["at"]) == (4, 6)
    assert {"auto", "einsum", "conv2d"} == first["seconds"].keys()


@pytest.mark.once
def test_rounding_is_appended(tmp_path, monkeypatch):
    monkeypatch.setattr(
        rounding, "GEOMETRIES", {"3x3": [(3, 5, 1)] * 2, "4": [(4, 7, 1)]}
    )
    rounding.main(["--only", "einsum", "--results", str(tmp_path)])
    found = records.read("rounding", tmp_path)
    errors = [row["output"]["value"] for row in found]
    assert errors[0] < 1e-14 < errors[1] < 1e-5 < errors[2] < 2e-2


@pytest.mark.slow
@pytest.mark.once
def test_a_draw_goes_on_and_measures_what_is_chosen_otherwise(
    monkeypatch, tmp_path
):
    timed = []

    def instead(line, seconds):
        timed.append(line.name)
        algorithms = regret.ops.candidates(regret.CPU, len(line.grid))
        figures = {"seconds": {name: [1.0] for name in algorithms}}
        found = {}
        for phase in regret.PHASES:
            row = {"case": {"phase": phase}, **figures}
            row["layer"] = regret.dataclasses.asdict(line)
            chosen = regret.measured(row).choice(regret.CPU)
            found[phase] = figures | {"auto": chosen, "best": chosen}
            found[phase]["regret"] = 1.0
        return found

    monkeypatch.setattr(regret, "time_line", instead)
    draw = ["--draw", "3", "--results", str(tmp_path), "--number"]
    regret.main([*draw, "2"])
    regret.main([*draw, "4"])
    assert len(timed) == 4
    path = tmp_path / "regret.jsonl"
    lines = path.read_text().splitlines()
    row = json.loads(lines[3])
    row["auto"] = "einsum"  # as if by an earlier model
    path.write_text("\n".join([*lines[:3], json.dumps(row), *lines[4:]]) + "\n")
    regret.main([*draw, "4"])
    assert timed[4:] == [row["line"]]
    assert len(records.latest("regret", tmp_path)) == 8


@pytest.mark.once
def test_algorithms_are_compared_turn_by_turn():
    found = regret.compare({"a": lambda: None, "b": lambda: None}, "a", 0)
    assert found["auto"] == "a"
    assert found["regret"] >= 1.0
    assert found["seconds"].keys() == {"a", "b"}


git = pytest.mark.skipif(
    not (records.ROOT / ".git").exists(), reason="no checkout of git"
)


@git
@pytest.mark.once
@pytest.mark.slow
def test_a_version_is_timed_and_compared_with_itself(tmp_path):
    case = "14x14, d=64, scope 5, k=32"
    only = ["--before", "HEAD", "--only", case]
    versions.main([*only, *LEAST, str(tmp_path)])
    found = records.read("versions", tmp_path)
    assert [row["case"]["phase"] for row in found] == ["forward", "training"]
    for row in found:
        assert {x: len(y) for x, y in row["seconds"].items()} == {
            "before": 5,
            "after": 5,
        }


@pytest.mark.slow
@git
@pytest.mark.once
def test_each_version_is_that_of_its_folder(tmp_path):
    versions.extract("HEAD", tmp_path)
    layers = tmp_path / "lambdanet_tf/layers/__init__.py"
    layers.write_text("raise SystemExit")
    with (
        versions.worker(tmp_path) as version,
        pytest.raises(RuntimeError, match="failed"),
    ):
        version.run("forward 7x7, d=512, scope global")
    with pytest.raises(subprocess.CalledProcessError):
        versions.extract("no such commit", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["axial attention", "lambda, shared"])
def test_a_step_has_the_gradients_of_a_stage(name, rng):
    case = attention.Case(batch=2, side=3, filters=16, layers=2)
    step = attention.training_step(name, case, jit_compile=False)
    gradients = step(tf.constant(rng.normal(size=case.shape), tf.float32))
    # Four layers of three projections and a table; two of three projections,
    # two normalizations and one table.
    assert len(gradients) == 1 + (16 if name == "axial attention" else 15)
    assert all(gradient is not None for gradient in gradients)


@pytest.mark.parametrize("constant", [0, 5, 90])
def test_the_largest_batch_that_fits(constant):
    def used(batch):
        return constant + 7 * batch + (3 if batch % 5 else 0)

    expected = max(batch for batch in range(99) if used(batch) <= 100)
    assert attention.largest_batch(used, 100) == expected


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.skipif(not KERAS_3, reason="a process of its own")
def test_the_compiler_counts_bytes(tmp_path):
    # Of a product: two matrices and the result. Pointers: some bytes more.
    code = (
        "import tensorflow as tf\n"
        "from benchmarks.layers.attention import Compiler\n"
        f"compiler = Compiler({str(tmp_path)!r})\n"
        "function = tf.function(lambda x: x @ x, jit_compile=True)\n"
        "for n in (64, 1024):\n"
        "    print(compiler.bytes_of(function, [n, n]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    for n, size in zip((64, 1024), done.stdout.split(), strict=True):
        assert 2 * 4 * n**2 <= int(size) <= 2 * 4 * n**2 + 4096
