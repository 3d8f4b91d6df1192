"""The GPU benchmark: lowered, measured on JAX for CPUs, and appended."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from benchmarks import records
from benchmarks.gpu import report as gpu_report
from benchmarks.layers import device_fit
from benchmarks.views import gpu as views

ROOT = pathlib.Path(__file__).parents[2]
LOWER = """
import pathlib, sys
from benchmarks.gpu.lower import write
from benchmarks.gpu.programs import Entry
from benchmarks.tpu.programs import Program
entries = []
for training, policy in ((True, "mixed_bfloat16"), (False, "float32")):
    for name in ("lambda_first", "query_first"):
        changes = {"filters": 16, "scope": 3, "implementation": name}
        program = Program(name, "", changes, 5, 2, policy, training)
        entries.append(Entry(policy, name, program))
write(pathlib.Path(sys.argv[1]), entries)
"""


def python_with_jax():
    """An interpreter that has JAX: this one, or that of `make test-tpu`."""
    for python in (sys.executable, ROOT / ".venv-tpu/bin/python"):
        command = [python, "-c", "import jax, tensorflow"]
        if (
            pathlib.Path(python).exists()
            and subprocess.run(
                command, capture_output=True, check=False
            ).returncode
            == 0
        ):
            return str(python)
    pytest.skip("needs jax beside TensorFlow: make .venv-tpu/.tpu")


@pytest.mark.once
@pytest.mark.slow
def test_programs_are_lowered_measured_and_appended(tmp_path):
    python = python_with_jax()
    programs, results = tmp_path / "programs.zip", tmp_path / "gpu.json"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    measure = ROOT / "benchmarks/gpu/measure.py"
    for command in (
        [python, "-c", LOWER, programs],
        [python, measure, programs, results, "--repetitions", "3"],
    ):
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
    figures = json.loads(results.read_text())
    assert figures["machine"]["backend"] == "cpu"
    assert figures["skipped"] == []
    assert set(figures["groups"]) == {"mixed_bfloat16", "float32"}
    for group in figures["groups"].values():
        assert group["failures"] == {}
        lines = {line["contestant"]: line for line in group["lines"]}
        assert set(lines) >= {"lambda_first", "query_first"}
        for line in lines.values():
            assert line["repetitions"] == 3
            assert 0 < line["fastest"] <= line["median"] <= line["slowest"]
    gpu_report.main([str(results), "--results", str(tmp_path)])
    views.gpu({"gpu": records.read("gpu", tmp_path)})


def figures_of(seconds):
    """Results with one line per contestant of a layer."""
    measured = {"repetitions": 20, "temporaries": 2**20}
    names = ("median", "fastest", "slowest")
    lines = [
        {"contestant": name, **dict.fromkeys(names, time), **measured}
        for name, time in seconds.items()
    ]
    group = {
        "layer": {"image_size": 14, "filters": 256, "scope": 23, "batch": 64},
        "peer": None,
        "batch": 64,
        "training": True,
        "bfloat16": True,
        "image_size": 14,
        "operations": {},
        "failures": {"einsum": "out of memory"},
        "lines": lines,
    }
    machine = {"backend": "gpu", "device": "Card", "jax": "1"}
    machine |= {"packages": {"timm": "2"}, "missing": {}}
    return {"machine": machine, "skipped": [], "groups": {"layer": group}}


@pytest.mark.slow
@pytest.mark.parametrize("fastest", ["lambda_first", "query_first"])
def test_results_are_appended_and_a_row_is_fitted_to_them(fastest, tmp_path):
    seconds = {"lambda_first": 9e-3, "query_first": 9e-3, "timm, eager": 3e-3}
    figures = figures_of({**seconds, fastest: 1e-3})
    (tmp_path / "gpu.json").write_text(json.dumps(figures))
    arguments = [str(tmp_path / "gpu.json"), "--results", str(tmp_path)]
    gpu_report.main(arguments)
    found = {"gpu": records.read("gpu", tmp_path)}
    assert found["gpu"]
    views.gpu(found)
    views.gpu_picture(found)
    row = gpu_report.measured(figures["groups"]["layer"])
    fitted = device_fit.fit([row], gpu_report.GPU)
    assert row.regret(fitted) <= row.regret(gpu_report.GPU)
