"""LambdaNetworks for TensorFlow and Keras.

`lambdanet_tf.layers`, `.models` and `.ops` are imported when you first use
them. Before you load a `.keras` file with lambda layers, `import
lambdanet_tf.layers`, which registers them with Keras.
"""

import importlib
import types

__all__ = ["layers", "models", "ops"]
__version__ = "1.1.0"


def __getattr__(name: str) -> types.ModuleType:
    if name not in __all__:
        raise AttributeError(f"{__name__} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
