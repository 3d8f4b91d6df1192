"""LambdaNetworks for TensorFlow and Keras.

`lambdanet_tf.layers`, `.models` and `.ops` are imported at their first use. A
`.keras` file with lambda layers is read after `import lambdanet_tf.layers`,
which makes them known to Keras.
"""

import importlib
import types

__all__ = ["layers", "models", "ops"]
__version__ = "1.0.0"


def __getattr__(name: str) -> types.ModuleType:
    if name not in __all__:
        raise AttributeError(f"{__name__} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
