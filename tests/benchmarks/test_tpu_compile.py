"""The command that compiles for TPUs, with other programs in its children."""

import re
import sys
import time
import types

import pytest

from benchmarks import records
from benchmarks.tpu import compile as tpu_compile
from benchmarks.tpu import floor as tpu_floor
from benchmarks.tpu import outcome
from benchmarks.tpu import programs as tpu_programs
from benchmarks.tpu.programs import GIB
from benchmarks.tpu.programs import PROGRAMS
from benchmarks.views import tpu as views

pytestmark = pytest.mark.once

KEY = "LambdaResNet50, 128 px, batch 32"
GOOD = {
    "status": "ok",
    "counted_flops": 3e9,
    "flops": 3.03e9,
    "without_kernel": [],
    "double": [],
    "arguments": GIB,
    "outputs": GIB,
    "aliases": GIB,
    "temporaries": 2 * GIB,
    "code_bytes": 0,
    "compile_seconds": 60.0,
}


# One child.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("print('so far'); print('{\"status\": \"ok\"}')", {"status": "ok"}),
        (
            "import json, sys; print(json.dumps({'status': sys.argv[1:]}))",
            {"status": ["module", KEY, "v3"]},
        ),
        (
            "raise SystemExit('no such chip')",
            {"status": "failed", "exit_code": 1, "message": "no such chip"},
        ),
        ("import os; os.abort()", {"status": "failed", "exit_code": -6}),
        (
            "import time; time.sleep(60)",
            {"status": "timed out", "limit_seconds": 1},
        ),
    ],
    ids=["last line", "told what", "fails", "killed", "too long"],
)
def test_a_child_answers_or_ends(monkeypatch, text, expected):
    monkeypatch.setattr(tpu_compile, "CHILD", (sys.executable, "-c", text))
    start = time.monotonic()
    limit = expected.get("limit_seconds", 30)
    result = tpu_compile.compile_in_child("module", KEY, "v3", limit)
    assert expected.items() <= result.items()
    assert time.monotonic() - start < 30


# What the compiler refuses, and what is wrong with a result.

TOO_LARGE = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, "
    "the total memory required for HLO temporaries (34.33G) exceeds available "
    "HBM (15.48G). HLO module: jit_call."
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            TOO_LARGE,
            {"status": "out of memory", "used": "34.33G of 15.48G"},
        ),
        ("INVALID_ARGUMENT: dynamic shape", {"status": "failed"}),
    ],
)
def test_a_program_that_is_refused(message, expected):
    assert outcome.refusal(message) == {**expected, "message": message}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "failed", "message": "no jax"}, "failed: no jax"),
        ({"status": "out of memory"}, "out of memory"),
        ({"temporaries": 16 * GIB}, "needs .* bytes of"),
        ({"flops": 3.3e9}, "1.10 times the flops"),
        ({"flops": 0.0}, "0.00 times the flops"),
        ({"without_kernel": ["AsString"]}, "no kernel for AsString"),
        ({"double": ["mul"]}, "float64: mul"),
    ],
)
def test_problems(change, message):
    assert tpu_compile.problems("v3", GOOD) == []
    (found,) = tpu_compile.problems("v3", {**GOOD, **change})
    assert re.search(message, found)


@pytest.mark.parametrize(
    ("status", "code", "count"),
    [("ok", 0, "4 passed, 0 failed"), ("failed", 1, "0 passed, 4 failed")],
)
def test_check(monkeypatch, capsys, status, code, count):
    result = {**GOOD, "status": status, "message": "no jax"}
    monkeypatch.setattr(tpu_compile, "compile_in_child", lambda *_: result)
    assert tpu_compile.main(["--check"]) == code
    assert capsys.readouterr().out.splitlines()[-1] == count


# All of them.


@pytest.fixture
def compiled(monkeypatch):
    """Which programs are compiled, and with what result."""
    calls, results = [], {}

    def compile_in_child(module, key, chip, timeout):
        calls.append((key, chip))
        result = results.get((key, chip), GOOD)
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(tpu_compile, "compile_in_child", compile_in_child)
    return calls, results


def run_all(folder, *arguments):
    only = ["--results", str(folder), "--only", "LambdaResNet50"]
    return tpu_compile.main([*only, "--chips", "v3", *arguments])


def test_a_stopped_run_goes_on(compiled, tmp_path):
    calls, results = compiled
    keys = [key for key in PROGRAMS if "LambdaResNet50" in key]
    results[keys[1], "v3"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run_all(tmp_path)
    assert calls == [(keys[0], "v3"), (keys[1], "v3")]
    results.clear()
    assert run_all(tmp_path) == 0
    assert calls[2:] == [(key, "v3") for key in keys[1:]]
    found = records.read("tpu", tmp_path)
    cases = [PROGRAMS[key].case(chip="v3") for key in keys]
    assert [row["case"] for row in found] == cases


def test_what_failed_is_tried_again_and_what_does_not_fit_is_not(
    compiled, tmp_path
):
    calls, results = compiled
    keys = [key for key in PROGRAMS if "LambdaResNet50" in key]
    results[keys[0], "v3"] = {"status": "failed", "message": "oh"}
    results[keys[1], "v3"] = outcome.refusal(TOO_LARGE)
    results[keys[2], "v3"] = {"status": "timed out", "limit_seconds": 9}
    assert run_all(tmp_path, "--timeout", "9") == 1
    calls.clear()
    assert run_all(tmp_path, "--timeout", "9") == 1
    assert calls == [(keys[0], "v3")]
    run_all(tmp_path, "--timeout", "99")
    assert calls[1:] == [(keys[0], "v3"), (keys[2], "v3")]


def test_an_unknown_program(capsys, tmp_path):
    with pytest.raises(SystemExit):
        tpu_compile.main(["--results", str(tmp_path), "--only", "VGG"])
    assert "no program's name has 'VGG'" in capsys.readouterr().err


# Against the paper's measurements.


def test_a_fit_finds_the_factor_and_what_is_ranked_wrongly():
    exact = views.fit([(1.0, 1.5), (2.0, 3.0), (4.0, 6.0)])
    assert exact["factor"] == pytest.approx(1.5)
    assert exact["scatter"] == pytest.approx(1.0)
    assert exact["ranks"] == pytest.approx(1.0)
    assert exact["inverted"] == 1.0
    wrong = views.fit([(1.0, 1.5), (2.0, 6.0), (4.0, 3.0)])
    assert wrong["worst"] == pytest.approx(2.0, rel=1e-3)
    assert wrong["ranks"] == pytest.approx(0.5)
    assert wrong["inverted"] == pytest.approx(2.0)


def test_throughputs_are_relative_to_convolutions():
    network = {"px": 224, "batch": 128, "chip": "v3"}
    rows = [
        {
            "case": {"name": f"ResNet50 {pattern}", **network},
            "changes": {},
            **GOOD,
            "optimal_seconds": seconds,
            "cycles": cycles,
        }
        for pattern, seconds, cycles in (
            ("CCCC", 0.02, 1_000),
            ("LLLL", 0.08, 5_000),
        )
    ]
    found = views.throughputs({"tpu": rows})
    assert len(views.MEASURED) == 21
    assert found["CCCC"] == (1.0, 1.0, 1.0)
    assert found["LLLL"] == pytest.approx((1160 / 7240, 0.25, 0.2))
    assert found["CCLL"][1:] == (None, None)


def test_a_floor_is_that_of_products_or_of_bytes():
    chip = tpu_programs.CHIPS["v3"]
    layers = [
        # Products take a second, bytes nothing.
        layer(executed_flops=chip.flops / 6, activation_bytes=0),
        # Two seconds of bytes, of lambdas.
        layer("fourier_tpu", 1, activation_bytes=chip.bandwidth / 5),
        # What has no products may be computed on the way.
        layer(executed_flops=0, activation_bytes=chip.bandwidth),
        # No lambdas are stored.
        layer("query_first", 1, chip.bandwidth, output_shape=(2, 4)),
    ]
    program = types.SimpleNamespace(batch=2)
    found = tpu_floor.floor(types.SimpleNamespace(layers=layers), program, chip)
    small = 2 * 5 * 16 / chip.bandwidth
    assert found["lambda"] == pytest.approx(2 + small, rel=1e-12)
    assert found["all"] == pytest.approx(3 + small, rel=1e-12)


def layer(algorithm="", executed_flops=0, activation_bytes=0, **fields):
    return types.SimpleNamespace(
        **{"output_shape": (), **fields},
        algorithm=algorithm,
        executed_flops=executed_flops,
        activation_bytes=activation_bytes,
    )
