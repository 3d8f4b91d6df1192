"""Version folders: `<destination>/<name>/<integer>`, complete or absent.

A server that watches `<destination>/<name>` loads every folder whose name is
an integer, the moment it appears. So a version is written elsewhere, and gets
its name when it is complete: on a disk by renaming it, in a store such as
gs://, which cannot rename folders, by copying `saved_model.pb` last.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import users_input
from lambdanet_tf.files import FileError
from lambdanet_tf.files import matching
from lambdanet_tf.files import read_text
from lambdanet_tf.files import sha256_of

MODEL_FILE = "saved_model.pb"
EXTRA_FOLDER = "assets.extra"
METADATA_FILE = f"{EXTRA_FOLDER}/export.json"
CARD_FILE = f"{EXTRA_FOLDER}/model_card.md"
_SEAL = "\nSHA-256 of the text above: "

# A local path, or the address of a folder in a store.
Folder = pathlib.Path | str

# What JSON has for the fields that others read.
_KINDS = {
    "checksums": dict,
    "labels": (list, type(None)),
    "options": dict,
    "metadata": dict,
}
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def list_versions(folder: str | os.PathLike) -> list[int]:
    """Returns the versions in the folder of a model, ascending."""
    return sorted(int(name) for name in _names(folder) if name.isdecimal())


def newest_export(destination: str | os.PathLike) -> Folder:
    """Returns the version folder that was written last.

    Args:
        destination: the folder that holds `<name>/<version>`.

    Returns:
        A path; a string where the destination is an address.

    Raises:
        ValueError: if there is none.

    Examples:
        >>> newest_export("exported").name
        '1'
    """
    files = [
        _join(destination, name, version, MODEL_FILE)
        for name in _names(destination)
        for version in list_versions(_join(destination, name))
    ]
    written = {
        tf.io.gfile.stat(file).mtime_nsec: os.path.dirname(file)
        for file in files
        if tf.io.gfile.exists(file)
    }
    if not written:
        raise UserError(
            "`destination` must hold an exported model. Received "
            f"{os.fspath(destination)}, which holds none. Export one with "
            "`python export.py`."
        )
    return _folder(written[max(written)])


@dataclasses.dataclass
class NewVersion:
    """A version that is being written.

    Attributes:
        folder: to write into, a local one.
        final: the version folder that it becomes at the end.
    """

    folder: pathlib.Path
    final: Folder


@contextlib.contextmanager
def new_version(
    destination: str | os.PathLike, name: str, version: int | None = None
) -> Iterator[NewVersion]:
    """Creates a version folder, complete or not at all.

    Args:
        destination: folder that holds `<name>/<version>`, on any file system
            that `tf.io.gfile` knows.
        name: of the model.
        version: None for the one after the highest. A version that exists is
            never touched.

    Yields:
        A `NewVersion`, removed if the block fails. Without a version given it
        becomes a higher one if another export has taken its own meanwhile.

    Raises:
        ValueError: if the name is no name for a folder, or the version exists
            or is not a positive integer.
        OSError: if the folder cannot be written.
    """
    if not _MODEL_NAME.fullmatch(name):
        raise UserError(
            "`name` must be made of letters, digits, '.', '_' and '-', and "
            f"begin with a letter or a digit. Received: name={name!r}."
        )
    place = _join(destination, name)
    final = _free_folder(place, version)
    is_local = isinstance(final, pathlib.Path)
    try:
        if is_local:
            os.makedirs(place, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix="unfinished-", dir=place if is_local else None
        ) as scratch:
            new = NewVersion(pathlib.Path(scratch, "version"), final)
            new.folder.mkdir()  # with the rights that the user's mask leaves
            yield new
            if version is None:
                new.final = final = _free_folder(place, version)
            if tf.io.gfile.exists(os.fspath(final)):
                raise FileExistsError(f"{final} has been written meanwhile")
            if is_local:
                new.folder.rename(final)
            else:
                _upload(new.folder, final)
    except (OSError, tf.errors.OpError) as error:
        raise FileError(
            f"Cannot write {final}: {error}. Nothing was left behind."
        ) from error


@contextlib.contextmanager
def local_copy(folder: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Gives an export as a local folder: itself, or a copy for a while."""
    path = _folder(os.fspath(folder))
    if isinstance(path, pathlib.Path):
        yield path
        return
    with tempfile.TemporaryDirectory() as scratch:
        sums = read_metadata(path)["checksums"]
        for name in (METADATA_FILE, CARD_FILE, *sums):
            target = pathlib.Path(scratch, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if tf.io.gfile.exists(_join(path, name)):
                tf.io.gfile.copy(_join(path, name), str(target))
        yield pathlib.Path(scratch)


def write_metadata(folder: pathlib.Path, **fields: Any) -> dict[str, str]:
    """Writes what an export says of itself, with the checksums of its files.

    Returns:
        These checksums, and that of the file with them, by path.
    """
    fields["checksums"] = sums = checksums(folder)
    content = (json.dumps(fields, indent=2) + "\n").encode()
    (folder / METADATA_FILE).write_bytes(content)
    return {**sums, METADATA_FILE: hashlib.sha256(content).hexdigest()}


def read_metadata(folder: str | os.PathLike) -> dict[str, Any]:
    """Reads what an export says of itself: the content of `export.json`.

    Args:
        folder: the version folder of an export.

    Returns:
        The fields of `export.json`, a dictionary.

    Raises:
        ValueError: if it is not a version folder that this package wrote.

    Examples:
        >>> sorted(read_metadata("exported/LambdaResNetSmall/1"))
        [...]
    """
    file = _join(folder, METADATA_FILE)
    if not tf.io.gfile.exists(file):
        raise UserError(
            "`folder` must be a version folder that this package wrote. "
            f"Received {folder}, which holds no {METADATA_FILE}."
        )
    try:
        fields = json.loads(read_text(file))
    except ValueError as error:
        raise UserError(f"Cannot read {file}: {error}.") from error
    for name, kinds in _KINDS.items():
        found = fields.get(name, ...) if isinstance(fields, dict) else ...
        if not isinstance(found, kinds):
            raise UserError(
                f"{file} is damaged: its `{name}` is missing or malformed."
            )
    return fields


def changed_files(folder: pathlib.Path, sums: dict[str, str]) -> list[str]:
    """Returns the files of a local export that are not those written.

    Args:
        folder: the version folder.
        sums: the checksums in `export.json`, whose own the card has.
    """
    found = checksums(folder)
    changed = [
        name
        for name, checksum in {MODEL_FILE: "", **sums}.items()
        if found.get(name) != checksum
    ]
    card = folder / CARD_FILE
    text = card.read_bytes().decode(errors="replace") if card.is_file() else ""
    above, mark, _ = text.rpartition(_SEAL)
    # Earlier versions of this package wrote no seal.
    is_whole = not mark or text == sealed(above)
    if found[METADATA_FILE] not in text or not is_whole:
        changed.append(f"{METADATA_FILE} or {CARD_FILE}")
    return changed


def sealed(text: str) -> str:
    """Returns a text with its own SHA-256 in a last line."""
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return f"{text}{_SEAL}{checksum}\n"


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """Returns the SHA-256 of each file in a local folder, by its path."""
    return {
        file.relative_to(folder).as_posix(): sha256_of(os.fspath(file))
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def _names(folder):
    """Names of the folders in a folder; none if it is not there."""
    paths = matching(os.fspath(folder), "*")
    return [os.path.basename(path) for path in paths if tf.io.gfile.isdir(path)]


def _join(folder, *names):
    return os.path.join(os.fspath(folder), *map(str, names))


def _folder(path):
    # `pathlib` would drop the second slash of an address.
    return path if "://" in path else pathlib.Path(path)


@users_input()
def _free_folder(place, version):
    taken = list_versions(place)
    if version is None:
        version = (taken[-1] if taken else 0) + 1
    elif positive_int("version", version) in taken:
        raise UserError(
            f"`version` must be new. Received: version={version}; "
            f"{place} holds {taken}. The next one is {taken[-1] + 1}."
        )
    return _folder(_join(place, version))


def _upload(folder, final):
    """Copies a folder into a store, and all of it or nothing stays there."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    try:
        for file in sorted(files, key=lambda file: file.name == MODEL_FILE):
            target = _join(final, file.relative_to(folder).as_posix())
            tf.io.gfile.makedirs(os.path.dirname(target))
            tf.io.gfile.copy(str(file), target)
    except (OSError, tf.errors.OpError):
        if tf.io.gfile.exists(final):
            tf.io.gfile.rmtree(final)
        raise
