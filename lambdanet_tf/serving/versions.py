"""Version folders: `<destination>/<name>/<integer>`, complete or absent.

A server that watches `<destination>/<name>` loads every folder whose name is
an integer, the moment it appears. So a version is written into a folder beside
it, whose name is no integer, and renamed when it is complete.
"""

import contextlib
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Iterator

import tensorflow as tf

from lambdanet_tf.arguments import positive_int

_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Such as gs://bucket. Drives of Windows have one letter, and `pathlib` drops
# the second slash.
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def list_versions(folder: str | os.PathLike) -> list[int]:
    """Returns the versions in the folder of a model, ascending."""
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        return []
    return sorted(
        int(entry.name)
        for entry in folder.iterdir()
        if entry.is_dir() and entry.name.isdecimal()
    )


def newest_export(destination: str | os.PathLike) -> pathlib.Path:
    """Returns the version folder that was written last.

    Raises:
        ValueError: if there is none.
    """
    base = _local_folder("destination", destination)
    folders = [
        file.parent
        for file in base.glob("*/*/saved_model.pb")
        if file.parent.name.isdecimal()
    ]
    if not folders:
        raise ValueError(
            f"`destination` must hold an exported model. Received {base}, "
            "which holds none. Export one with `python export.py`."
        )
    return max(folders, key=lambda folder: folder.stat().st_mtime_ns)


@contextlib.contextmanager
def new_version(
    destination: str | os.PathLike, name: str, version: int | None = None
) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """Creates a version folder, complete or not at all.

    Args:
        destination: local folder that holds `<name>/<version>`.
        name: of the model.
        version: None for the one after the highest. A version that exists is
            never touched.

    Yields:
        The folder to write into, and the version folder that it becomes at the
        end of the block. It is removed if the block fails.

    Raises:
        ValueError: if the name is no name for a folder, or the version exists
            or is not a positive integer.
        OSError: if the folder cannot be written.
    """
    if not _MODEL_NAME.fullmatch(name):
        raise ValueError(
            "`name` must be made of letters, digits, '.', '_' and '-', and "
            f"begin with a letter or a digit. Received: name={name!r}."
        )
    model_folder = _local_folder("destination", destination) / name
    final = model_folder / str(_free_version(model_folder, version))
    folder = _folder_beside(final)
    try:
        yield folder, final
        if final.exists():
            raise FileExistsError(f"{final} has been written meanwhile")
        folder.rename(final)
    except (OSError, tf.errors.OpError) as error:
        raise OSError(
            f"Cannot write {final}: {error}. Nothing was left behind."
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _local_folder(argument, path):
    """A path, unless it names a remote store: those cannot rename folders."""
    if _REMOTE.match(os.fspath(path)):
        raise ValueError(
            f"`{argument}` must be a local folder. Received {path}. Export "
            "into a local folder and copy it with the tools of the store."
        )
    return pathlib.Path(path)


def _free_version(model_folder, version):
    taken = list_versions(model_folder)
    if version is None:
        return (taken[-1] if taken else 0) + 1
    if positive_int("version", version) in taken:
        raise ValueError(
            f"`version` must be new. Received: version={version}; "
            f"{model_folder} holds {taken}. The next one is {taken[-1] + 1}."
        )
    return version


def _folder_beside(final):
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        name = f"unfinished-{final.name}-{secrets.token_hex(8)}"
        folder = final.parent / name
        folder.mkdir()  # with the rights that the user's mask leaves
        return folder
    except OSError as error:
        raise OSError(
            f"Cannot write to {final.parent}: {error}. Choose a folder that "
            "can be written."
        ) from error
