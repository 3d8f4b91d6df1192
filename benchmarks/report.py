"""Files of figures, and blocks of pages, of what has no records yet."""

import json


def stored(path, default):
    """What a JSON file holds.

    Args:
        path: of the file, or None.
        default: what to return where there is no file.
    """
    if path is None or not path.exists():
        return default
    return json.loads(path.read_text())


def insert(folder, section, text, document="engine.md"):
    """Replaces what stands between the marks of a section of a document."""
    document = folder / document
    whole = document.read_text()
    begin, end = (f"<!-- {section}:{mark} -->" for mark in ("begin", "end"))
    before, rest = whole.split(begin)
    after = rest.split(end)[1]
    document.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
