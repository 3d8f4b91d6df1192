"""What `lambdanet_tf.garden` says where it cannot work."""

import importlib
import sys

import pytest
import tensorflow as tf

from lambdanet_tf.environment import KERAS_3


@pytest.mark.parametrize("missing", ["extra", "TensorFlow 2.20 or tf_keras"])
def test_what_is_missing_is_said(monkeypatch, missing):
    monkeypatch.delitem(sys.modules, "lambdanet_tf.garden", raising=False)
    if missing == "extra":
        message = r"pip install \"lambdanet-tf\[gard"
        for module in ("official.vision", "official"):
            monkeypatch.setitem(sys.modules, module, None)
    else:
        pytest.importorskip("official")
        message = r"needs TensorFlow 2\.20.*2\.21\.0"
        if KERAS_3:
            message = "TF_USE_LEGACY_KERAS=1 before"
        else:
            monkeypatch.setattr(tf, "__version__", "2.21.0")
    with pytest.raises(ImportError, match=message):
        importlib.import_module("lambdanet_tf.garden")
