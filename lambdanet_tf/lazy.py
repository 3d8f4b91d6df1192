"""Packages that import a name when it is first used.

TensorFlow takes seconds to import. A command that prints its help or rejects a
flag does not need it, but Python imports the packages around a module first.
"""

import ast
import importlib
import pathlib
import sys
from collections.abc import Callable
from typing import Any


def attach(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns `__getattr__`, `__dir__` and `__all__` of a package.

    The names are those that the `.pyi` file next to its `__file__` imports, all
    in the form `from module import name`.
    """
    stub = pathlib.Path(file).with_suffix(".pyi")
    modules = {
        alias.name: statement.module
        for statement in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }

    def getattr_of_package(name: str) -> Any:
        if name not in modules:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}"
            )
        value = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)  # found directly next time
        return value

    def dir_of_package() -> list[str]:
        return sorted(modules)

    return getattr_of_package, dir_of_package, sorted(modules)
