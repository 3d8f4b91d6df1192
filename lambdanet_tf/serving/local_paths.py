"""Paths of this machine, told apart from addresses of a store."""

import pathlib
import re

# Two letters at least: Windows' drives have one. `pathlib` drops a slash.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def local_path(argument, path):
    """Returns a path, unless it is an address such as `gs://bucket/models`.

    A store has no renaming of folders, so a server could see half a model
    there; and `pathlib` would make a folder `gs:` here.

    Args:
        argument: str. What the path was given as, for the error.
        path: str or `pathlib.Path`.

    Raises:
        ValueError: if it is an address.
    """
    if _ADDRESS.match(str(path)):
        raise ValueError(
            f"`{argument}` must be a path of this machine. Received {path}. "
            "Work in a local folder, and copy it from or to the store with "
            "the store's own program."
        )
    return pathlib.Path(path)
