# TensorFlow ships no types, and those known to the type checker lack much of
# its interface: everything of TensorFlow has any type.
from typing import Any

def __getattr__(name: str) -> Any: ...
