"""What `lambdanet_tf.garden` says where it cannot work."""

import importlib
import importlib.util
import sys

import pytest
import tensorflow as tf

from lambdanet_tf.environment import KERAS_3

has_extra = pytest.mark.skipif(
    importlib.util.find_spec("official") is None, reason="needs the extra"
)


@pytest.fixture
def import_anew(monkeypatch):
    """A function that imports the package as if for the first time."""

    def run():
        monkeypatch.delitem(sys.modules, "lambdanet_tf.garden", raising=False)
        return importlib.import_module("lambdanet_tf.garden")

    return run


def test_without_the_extra(import_anew, monkeypatch):
    for module in ("official.vision", "official"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "official", None)
    with pytest.raises(ImportError, match=r"pip install \"lambdanet-tf\[gard"):
        import_anew()


@has_extra
def test_with_another_tensorflow(import_anew, monkeypatch):
    monkeypatch.setattr(tf, "__version__", "2.21.0")
    with pytest.raises(ImportError, match=r"needs TensorFlow 2\.20.*2\.21\.0"):
        import_anew()


@has_extra
@pytest.mark.skipif(not KERAS_3, reason="about Keras 3")
def test_with_keras_3(import_anew):
    with pytest.raises(ImportError, match="TF_USE_LEGACY_KERAS=1 before"):
        import_anew()


@pytest.mark.garden
def test_registering_twice_is_harmless(import_anew):
    import_anew().register()
