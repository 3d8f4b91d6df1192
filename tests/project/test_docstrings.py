"""Docstrings of public names: their form, and their examples, which run."""

import contextlib
import doctest
import importlib
import inspect
import io
import re
import shutil
import typing

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import data
from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf import specs
from lambdanet_tf import streaming
from lambdanet_tf import training

serving = importlib.import_module("lambdanet_tf.serving")
PACKAGES = (
    layers,
    models,
    specs,
    ops,
    data,
    training,
    serving,
    streaming,
    analysis,
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public():
    for package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                yield pytest.param(
                    value, id=f"{package.__name__.split('.')[-1]}.{name}"
                )


def docstring_of(value):
    return inspect.cleandoc(value.__doc__ or "")


def has_example(param):
    value, name = param.values[0], param.id.removeprefix("models.")
    is_exception = inspect.isclass(value) and issubclass(value, Exception)
    return not is_exception and name not in LARGE


def with_marks(param):
    """Leaves long examples to `make test-thorough` under Keras 3."""
    if param.id in LONG:
        marks = pytest.mark.thorough, pytest.mark.once
        return pytest.param(*param.values, id=param.id, marks=marks)
    return param


NAMES = list(public())
SMALL = ("LambdaResNetSmall", "LambdaResNet26T", "MobileNetV2")
# All have one example, which would build them: these three do.
LARGE = [name for name in specs.PRESETS if name not in SMALL]
# They train, export, or start a process.
LONG = {
    "data.read_pseudo_labels",
    "serving.Inference",
    "serving.Verification",
    "serving.export_model",
    "serving.export_run",
    "serving.newest_export",
    "serving.options_for",
    "serving.prediction_table",
    "serving.read_metadata",
    "serving.verify_export",
    "streaming.export",
    "training.label_images",
    "training.train",
}
WITH_EXAMPLES = [*map(with_marks, filter(has_example, NAMES))]
# What an example needs that is not among the base dependencies.
NEEDS = {
    "load_digits": "sklearn",
    "read_tfds": "tensorflow_datasets",
    **{name: "matplotlib" for name in analysis.__all__ if "_figure" in name},
}


@pytest.mark.once
@pytest.mark.parametrize("value", NAMES)
def test_a_docstring_says_what_is_done_what_goes_in_and_what_comes_out(value):
    text = docstring_of(value)
    first = text.split("\n")[0]
    assert first.endswith("."), first
    if inspect.isfunction(value) or issubclass(value, tf.keras.layers.Layer):
        assert first.split()[0].endswith("s"), first  # a verb
    is_told_elsewhere = re.search("see `(ResNet|MobileNet)`", text)
    if not inspect.isfunction(value) or is_told_elsewhere:
        return
    named = re.search(r"^Args:\n(.*?)(?:^\S|\Z)", text, re.M | re.S)
    for name, parameter in inspect.signature(value).parameters.items():
        is_free = parameter.kind is parameter.VAR_KEYWORD
        if not is_free and not hasattr(value, "__wrapped__"):
            assert named, "no section Args"
            assert re.search(rf"^    \*{{0,2}}{name}: ", named[1], re.M), name
    if typing.get_type_hints(value).get("return") is not type(None):
        returns = re.search(r"^(?:Returns|Yields):$", text, re.M)
        nothing = re.match(r"Raises |Writes ", text)
        assert returns or nothing, "no section Returns"


@pytest.fixture
def folders(request, tmp_path, monkeypatch):
    """A working folder with the run and the export that examples name."""
    monkeypatch.chdir(tmp_path)
    text = docstring_of(request.node.callspec.params["value"])
    if '"runs/smoke"' in text:
        run = request.getfixturevalue("finished_run")
        shutil.copytree(run.path, "runs/smoke")
    if '"exported' in text:
        export = request.getfixturevalue("small_export")
        shutil.copytree(export, "exported/LambdaResNetSmall/1")


@pytest.mark.usefixtures("folders")
@pytest.mark.representatives(30)
@pytest.mark.parametrize("value", WITH_EXAMPLES)
def test_an_example_computes_what_it_shows(value):
    if value.__name__ in NEEDS:
        pytest.importorskip(NEEDS[value.__name__])
    known = {"np": np, "tf": tf}
    known |= {package.__name__.split(".")[-1]: package for package in PACKAGES}
    for package in (layers, specs, inspect.getmodule(value)):
        known.update(vars(package))
    parsed = doctest.DocTestParser().get_doctest(
        docstring_of(value), known, value.__name__, None, 0
    )
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        result = doctest.DocTestRunner(optionflags=FLAGS).run(
            parsed, out=report.write
        )
    assert result.attempted, "no example"
    assert not result.failed, report.getvalue()
