"""What `lambdanet_tf.garden` says where it cannot work."""

import importlib
import sys

import pytest
import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import is_there

has_extra = pytest.mark.skipif(not is_there("official"), reason="no extra")


def import_anew(monkeypatch):
    """Imports the package as if for the first time."""
    monkeypatch.delitem(sys.modules, "lambdanet_tf.garden", raising=False)
    return importlib.import_module("lambdanet_tf.garden")


def test_without_the_extra(monkeypatch):
    for module in ("official.vision", "official"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "official", None)
    with pytest.raises(ImportError, match=r"pip install \"lambdanet-tf\[gard"):
        import_anew(monkeypatch)


@has_extra
def test_with_another_tensorflow(monkeypatch):
    monkeypatch.setattr(tf, "__version__", "2.21.0")
    with pytest.raises(ImportError, match=r"needs TensorFlow 2\.20.*2\.21\.0"):
        import_anew(monkeypatch)


@has_extra
@pytest.mark.skipif(not KERAS_3, reason="about Keras 3")
def test_with_keras_3(monkeypatch):
    with pytest.raises(ImportError, match="TF_USE_LEGACY_KERAS=1 before"):
        import_anew(monkeypatch)
