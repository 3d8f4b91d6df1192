"""The engine's figures as text, and as tables in the docs."""

import json
import statistics

NAIVE = ("einsum", "conv2d", "depthwise")  # the algorithms of other packages
PEERS = ("timm conv", "timm table", "lucidrains")


def _median(row, phase, name):
    return row[phase][name][0] if name in row[phase] else None


def ratio(row, phase, names):
    """How many times longer the best of some contestants takes than auto."""
    times = [_median(row, phase, name) for name in names]
    times = [time for time in times if time is not None]
    return min(times) / _median(row, phase, "auto") if times else None


def _ours(row, phase):
    return [n for n in row[phase] if n != "auto" and n not in PEERS]


def _format(ratio):
    return "" if ratio is None else f"{ratio:.2f}"


def text_row(row):
    """One line of the table for the screen."""
    cells = []
    for name in row["forward"]:
        forward, training = (
            1e3 * _median(row, phase, name) for phase in ("forward", "training")
        )
        cells.append(f"{name} {forward:.1f}/{training:.1f}")
    return f"{row['line']} (batch {row['batch']}), ms: " + "  ".join(cells)


def table(figures):
    """A markdown table: auto's times, and the others as ratios to it."""
    head = (
        "| layer (h=4) | auto chooses | forward ms | spread | training ms "
        "| spread | share of matrix rate | to the fastest | to einsum, conv2d, "
        "depthwise | to timm, lucidrains | memory MiB (einsum) |"
    )
    lines = [head, "|" + "---|" * 11]
    lines += [
        _table_row(row, figures["matrix_rate"]) for row in figures["rows"]
    ]
    return "\n".join(lines)


def _table_row(row, rate):
    forward, training = row["forward"]["auto"], row["training"]["auto"]
    share = row["operations"] / forward[0] / rate
    pairs = [
        "/".join(
            _format(ratio(row, phase, names(phase)))
            for phase in ("forward", "training")
        )
        for names in (
            lambda phase: _ours(row, phase),
            lambda phase: NAIVE,
            lambda phase: PEERS,
        )
    ]
    memory = row["memory"]
    einsum = f" ({memory['einsum']:.0f})" if "einsum" in memory else ""
    cells = [
        f"{row['line']}, batch {row['batch']}",
        row["plan"].split(":")[0],
        f"{1e3 * forward[0]:.1f}",
        f"{1e3 * forward[1]:.1f}-{1e3 * forward[2]:.1f}",
        f"{1e3 * training[0]:.1f}",
        f"{1e3 * training[1]:.1f}-{1e3 * training[2]:.1f}",
        f"{100 * share:.0f} %",
        *pairs,
        f"{memory['auto']:.0f}{einsum}",
    ]
    return "| " + " | ".join(cells) + " |"


def summary(figures):
    """The sentences under the table."""
    sentences = []
    for phase in ("forward", "training"):
        rows = figures["rows"]
        fastest = [ratio(row, phase, _ours(row, phase)) for row in rows]
        peers = [ratio(row, phase, PEERS) for row in rows]
        peers = [ratio for ratio in peers if ratio is not None]
        worst = max(1 / ratio for ratio in fastest)
        text = f"{phase.capitalize()}: `auto` at most {worst:.2f} times the "
        text += "time of the fastest algorithm of a line"
        if peers:
            middle = statistics.median(peers)
            text += (
                f"; the best peer takes {min(peers):.2f} to {max(peers):.2f} "
                f"times as long as `auto`, median {middle:.2f}"
            )
        sentences.append(text + ".")
    return "\n".join(sentences)


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
