"""What `lambdanet_tf.garden` says where it cannot work."""

import importlib
import sys

import pytest
import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import is_there


@pytest.mark.parametrize("missing", ["extra", "TensorFlow 2.20", "tf_keras"])
def test_what_is_missing_is_said(monkeypatch, missing):
    if missing != "extra" and not is_there("official"):
        pytest.skip("no extra")
    monkeypatch.delitem(sys.modules, "lambdanet_tf.garden", raising=False)
    if missing == "extra":
        message = r"pip install \"lambdanet-tf\[gard"
        for module in ("official.vision", "official"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.setitem(sys.modules, "official", None)
    elif missing == "tf_keras":
        message = "TF_USE_LEGACY_KERAS=1 before"
        if not KERAS_3:
            pytest.skip("It is there.")
    else:
        message = r"needs TensorFlow 2\.20.*2\.21\.0"
        monkeypatch.setattr(tf, "__version__", "2.21.0")
    with pytest.raises(ImportError, match=message):
        importlib.import_module("lambdanet_tf.garden")
