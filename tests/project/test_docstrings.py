"""Docstrings of public names: their form, and the examples that they have."""

import contextlib
import doctest
import importlib
import inspect
import io
import shutil

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
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public():
    for package, module in PACKAGES.items():
        for name in getattr(module, "__all__", [*vars(module)]):
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                yield pytest.param(value, id=f"{package}.{name}")


def docstring_of(value):
    return inspect.cleandoc(value.__doc__ or "")


NAMES = [*public()]
SMALL = ("LambdaResNetSmall", "LambdaResNet26T", "MobileNetV2")
# All have one example, which would build them: these three do.
LARGE = [name for name in specs.PRESETS if name not in SMALL]
# They train, export, or start a process.
LONG = ("data.read_pseudo_labels", "streaming.export", "training.", "serving.")
# What an example needs that is not among the base dependencies.
NEEDS = {"load_digits": "sklearn", "read_tfds": "tensorflow_datasets"}


def with_examples():
    for param in NAMES:
        (value,), name = param.values, param.id
        has_example = ">>> " in docstring_of(value)
        if has_example and name.removeprefix("models.") not in LARGE:
            long = pytest.mark.slow, pytest.mark.once
            marks = long if name.startswith(LONG) else ()
            yield pytest.param(value, id=name, marks=marks)


@pytest.mark.once
def test_a_docstring_begins_with_a_sentence():
    for param in NAMES:
        (value,) = param.values
        first = docstring_of(value).split("\n")[0]
        assert first.endswith("."), param.id
        if not inspect.isclass(value) or issubclass(
            value, tf.keras.layers.Layer
        ):
            assert first.split()[0].endswith("s"), param.id  # a verb


@pytest.mark.parametrize("value", list(with_examples()))
def test_an_example_computes_what_it_shows(
    value, request, tmp_path, monkeypatch
):
    """In a folder with the run and the export that examples name."""
    monkeypatch.chdir(tmp_path)
    text = docstring_of(value)
    if '"runs/smoke"' in text:
        run = request.getfixturevalue("finished_run")
        shutil.copytree(run.path, "runs/smoke")
    if '"exported' in text:
        export = request.getfixturevalue("small_export")
        shutil.copytree(export, "exported/LambdaResNetSmall/1")
    name = value.__name__
    needs = "matplotlib" if "_figure" in name else NEEDS.get(name, "numpy")
    pytest.importorskip(needs)
    known = {"np": np, "tf": tf, **PACKAGES}
    for module in (PACKAGES["layers"], specs, inspect.getmodule(value)):
        known.update(vars(module))
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    parsed = parser.get_doctest(text, known, name, None, 0)
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        result = runner.run(parsed, out=report.write)
    assert result.attempted, "no example"
    assert not result.failed, report.getvalue()
