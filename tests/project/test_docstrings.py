"""Docstrings of public names: their form, and the examples that they have."""

import contextlib
import doctest
import importlib
import inspect
import io
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import specs

PACKAGES = {
    name: importlib.import_module(f"lambdanet_tf.{name}")
    for name in (
        *("layers", "models", "specs", "ops", "data"),
        *("training", "serving", "streaming", "analysis"),
    )
}
# All presets have one example, which would build them: these three do.
SMALL = ("LambdaResNetSmall", "LambdaResNet26T", "MobileNetV2")
# They train, export, or start a process.
LONG = ("data.read_pseudo_labels", "streaming.export", "training.", "serving.")
# What an example needs that is not among the base dependencies.
NEEDS = {"load_digits": "sklearn", "read_tfds": "tensorflow_datasets"}


def docstring_of(value):
    return inspect.cleandoc(value.__doc__ or "")


PUBLIC = {
    f"{package}.{name}": getattr(module, name)
    for package, module in PACKAGES.items()
    for name in getattr(module, "__all__", [*vars(module)])
    if isinstance(getattr(module, name), type | types.FunctionType)
}
EXAMPLES = [
    pytest.param(
        name, marks=[pytest.mark.slow, pytest.mark.once] * name.startswith(LONG)
    )
    for name, value in PUBLIC.items()
    if ">>> " in docstring_of(value)
    and value.__name__ not in specs.PRESETS.keys() - {*SMALL}
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_computes_what_it_shows(
    name, request, tmp_path, monkeypatch
):
    """In a folder with the run and the export that examples name."""
    monkeypatch.chdir(tmp_path)
    text = docstring_of(value := PUBLIC[name])
    if '"runs/smoke"' in text:
        run = request.getfixturevalue("finished_run")
        shutil.copytree(run.path, "runs/smoke")
    if '"exported' in text:
        export = request.getfixturevalue("small_export")
        shutil.copytree(export, "exported/LambdaResNetSmall/1")
    needs = "matplotlib" if "_figure" in name else "numpy"
    pytest.importorskip(NEEDS.get(value.__name__, needs))
    known = {"np": np, "tf": tf, **PACKAGES}
    for module in (PACKAGES["layers"], specs, inspect.getmodule(value)):
        known.update(vars(module))
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags)
    parsed = doctest.DocTestParser().get_doctest(text, known, name, None, 0)
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        result = runner.run(parsed, out=report.write)
    assert result.attempted, "no example"
    assert not result.failed, report.getvalue()
