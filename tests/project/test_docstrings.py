"""Docstrings of public names: what they begin with, and their examples."""

import contextlib
import doctest
import importlib
import inspect
import io

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

PACKAGES = (
    layers,
    models,
    specs,
    ops,
    data,
    training,
    importlib.import_module("lambdanet_tf.serving"),
    streaming,
    analysis,
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Words that a first line of a function begins with, and no verb ends so.
NO_VERBS = {"As", "Images", "Its", "Names", "This", "Weights", "Whereas"}


def public():
    for package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                yield pytest.param(
                    value, id=f"{package.__name__.split('.')[-1]}.{name}"
                )


def own_docstring(value):
    return value.__doc__ or ""


NAMES = list(public())
WITH_EXAMPLES = [
    param for param in NAMES if ">>>" in own_docstring(param.values[0])
]


@pytest.mark.once
@pytest.mark.parametrize("value", NAMES)
def test_a_docstring_begins_with_a_verb(value):
    first = own_docstring(value).split("\n")[0]
    assert first.endswith("."), first
    if inspect.isfunction(value) or issubclass(value, tf.keras.layers.Layer):
        word = first.split()[0]
        assert word.endswith("s"), first
        assert word not in NO_VERBS, first


@pytest.mark.parametrize("value", WITH_EXAMPLES)
def test_an_example_computes_what_it_shows(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {"models": models, "tf": tf}
    for package in (layers, specs, inspect.getmodule(value)):
        known.update(vars(package))
    parsed = doctest.DocTestParser().get_doctest(
        inspect.cleandoc(own_docstring(value)), known, value.__name__, None, 0
    )
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        result = doctest.DocTestRunner(optionflags=FLAGS).run(
            parsed, out=report.write
        )
    assert result.attempted
    assert not result.failed, report.getvalue()


@pytest.mark.once
def test_the_main_names_have_examples():
    shown = {param.id for param in WITH_EXAMPLES}
    assert shown >= {f"layers.{name}" for name in layers.__all__}
    assert len(shown) >= 20
