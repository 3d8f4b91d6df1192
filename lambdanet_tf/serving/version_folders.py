"""Version folders: `<base>/<name>/<integer>`, each complete or absent.

A server that watches `<base>/<name>` loads every folder whose name is an
integer, the moment it appears. So a version is written under a name that is
no integer, beside its place, and renamed into it when it is complete.
"""

import contextlib
import pathlib
import re
import shutil
import tempfile

import tensorflow as tf

from lambdanet_tf.serving.local_paths import local_path

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def versions(folder):
    """Returns the versions in a model's folder, ascending."""
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        return []
    return sorted(
        int(entry.name)
        for entry in folder.iterdir()
        if entry.is_dir() and entry.name.isdecimal()
    )


def newest_export(base):
    """Returns the version folder below `base` that was written last."""
    base = local_path("to", base)
    folders = [
        file.parent
        for file in base.glob("*/*/saved_model.pb")
        if file.parent.name.isdecimal()
    ]
    if not folders:
        raise ValueError(
            f"`to` must hold an exported model. Received {base}, which holds "
            "none. Export one with `python export.py`."
        )
    return max(folders, key=lambda folder: folder.stat().st_mtime_ns)


@contextlib.contextmanager
def new_version(base, name, version=None):
    """Gives a folder to write in; it becomes a version when the block ends.

    When the block fails, nothing of it stays. `version` None is the one after
    the highest; a version that exists is never touched.

    Yields:
        (folder, place): where to write, and where it will stand.

    Raises:
        ValueError: if the name is none for a folder, or the version exists or
            is no positive integer.
        OSError: if the disk refuses; the message says where.
    """
    model_folder = local_path("to", base) / _checked_name(name)
    place = model_folder / str(_checked_version(model_folder, version))
    folder = _folder_beside(place)
    try:
        yield folder, place
        _rename(folder, place)
    except (OSError, tf.errors.OpError) as error:
        raise OSError(
            f"Could not write {place}: {error}. Nothing was left behind."
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _checked_name(name):
    if not MODEL_NAME.fullmatch(name):
        raise ValueError(
            "`name` must be made of letters, digits, '.', '_' and '-', and "
            f"begin with a letter or a digit. Received {name!r}."
        )
    return name


def _checked_version(model_folder, version):
    taken = versions(model_folder)
    if version is None:
        return (taken[-1] if taken else 0) + 1
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(
            f"`version` must be a positive integer. Received {version!r}."
        )
    if version in taken:
        raise ValueError(
            f"`version` must be new. Received {version}; {model_folder} "
            f"already holds {taken}. Leave it out for {taken[-1] + 1}."
        )
    return version


def _folder_beside(place):
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(
            prefix=f"unfinished-{place.name}-", dir=place.parent
        )
    except OSError as error:
        raise OSError(
            f"Could not write below {place.parent}: {error}. Name a folder "
            "that can be written."
        ) from error
    return pathlib.Path(folder)


def _rename(folder, place):
    """Puts a complete folder in its place, unless somebody else was first."""
    if place.exists():
        raise FileExistsError(f"{place} has been written meanwhile")
    folder.chmod(0o755)  # mkdtemp gives 0o700, which a server cannot read
    folder.rename(place)
