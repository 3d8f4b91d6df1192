"""Blocks of pages, of what has no records."""


def insert(folder, section, text, document="engine.md"):
    """Replaces what stands between the marks of a section of a document."""
    document = folder / document
    whole = document.read_text()
    begin, end = (f"<!-- {section}:{mark} -->" for mark in ("begin", "end"))
    before, rest = whole.split(begin)
    after = rest.split(end)[1]
    document.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
