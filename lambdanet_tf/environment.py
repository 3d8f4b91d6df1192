"""The Keras behind `tf.keras`, and optional packages."""

import importlib
import importlib.util
import os
import platform
import sys
import types
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from lambdanet_tf.arguments import UserError

_BACKEND = (
    "lambdanet_tf needs the TensorFlow backend of Keras: set the environment "
    "variable KERAS_BACKEND=tensorflow before you import Keras (now: "
    f"{os.environ.get('KERAS_BACKEND', 'not set')}). If it is not set, "
    "~/.keras/keras.json decides."
)

_LEGACY = (
    "the environment variable TF_USE_LEGACY_KERAS selects tf_keras, which is "
    "not installed. Run: pip install tf_keras, with the minor version of "
    f"TensorFlow ({tf.__version__}). Or unset the variable to use Keras 3."
)


class MissingPackage(UserError, ImportError):
    """An optional package is not installed; the text says how to get it."""


def is_there(module: str) -> bool:
    """Returns whether a module is installed, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


# Keras 3 has `tf.keras.ops`; tf_keras and the Keras of TensorFlow 2.15 are
# Keras 2.
try:
    KERAS_3 = hasattr(tf.keras, "ops")
except ImportError as error:  # A Keras or a backend is not installed.
    legacy = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    reason = _LEGACY if legacy and not is_there("tf_keras") else _BACKEND
    raise ImportError(f"Keras cannot be imported: {reason}") from error


def check_backend() -> None:
    """Raises an ImportError unless Keras computes with TensorFlow."""
    backend = tf.keras.backend.backend() if KERAS_3 else "tensorflow"
    if backend != "tensorflow":
        raise ImportError(f"Keras uses the backend {backend!r}. {_BACKEND}")


def keras_version() -> str:
    """Returns the name and version of the Keras behind `tf.keras`."""
    if KERAS_3:
        return f"keras {tf.keras.__version__}"
    root = tf.keras.layers.Layer.__module__.split(".")[0]  # tf_keras or keras
    return f"{root} {sys.modules[root].__version__}"


def versions() -> dict[str, str]:
    """Returns the versions of TensorFlow, Keras and Python."""
    return {
        "tensorflow": tf.__version__,
        "keras": keras_version(),
        "python": platform.python_version(),
    }


def require(module: str, extra: str) -> types.ModuleType:
    """Imports an optional module, or raises with the command to install it.

    Args:
        module: the module, for example `"matplotlib.pyplot"`.
        extra: the extra of `lambdanet-tf` that installs it.

    Raises:
        MissingPackage: if it cannot be imported; the text says what to do.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackage(
            f"The module `{module}` could not be imported ({error}). Install "
            f"it with the extra `{extra}`: {install_command(extra)}."
        ) from error


def install_command(extras: str) -> str:
    """Returns the command that installs extras (separated by commas)."""
    return (
        f'pip install "lambdanet-tf[{extras}]", or in a checkout pip install '
        f'".[{extras}]"'
    )


def tf_variable(weight: Any) -> tf.Variable:
    """Returns TensorFlow's variable behind a weight of either Keras."""
    is_keras = KERAS_3 and isinstance(weight, tf.keras.Variable)
    return weight.value if is_keras else weight


def keras_mask(tensor: Any) -> Any:
    """Returns the mask that Keras propagates with a tensor, or None."""
    return getattr(tensor, "_keras_mask", None)


def is_compiled_by_xla() -> bool:
    """Returns whether XLA compiles the function that is being traced."""
    if tf.executing_eagerly():
        return False
    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
