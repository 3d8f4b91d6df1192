"""Results of compiling for TPUs, as a line and as the tables of docs/."""

import collections
import functools
import math
import re

from benchmarks.tpu_programs import CHIPS
from benchmarks.tpu_programs import EARLIER
from benchmarks.tpu_programs import GIB
from benchmarks.tpu_programs import LAYERS
from benchmarks.tpu_programs import NETWORKS
from benchmarks.tpu_programs import PAPERS_ORDER

NETWORK_COLUMNS = (
    "network",
    "px",
    "batch",
    "TPU",
    "result",
    "seconds",
    "arguments, GiB",
    "temporaries, GiB",
    "total, GiB",
    "operations, TFLOP",
    "algorithms",
)
ORDER_COLUMNS = (
    "network",
    "TPU",
    "`auto`, ms",
    "the paper's order, ms",
    "ratio of estimates",
    "ratio of cycles",
)
LAYER_COLUMNS = (
    "map",
    "channels",
    "batch",
    "algorithm",
    "TPU",
    "result",
    "seconds",
    "temporaries, MiB",
    "operations, GFLOP",
    "bytes moved, MiB",
    "estimate, ms",
    "cycles, million",
)


def memory(result):
    """Bytes that a compiled program needs on its core."""
    return (
        result["arguments"]
        + result["outputs"]
        - result["aliases"]
        + result["temporaries"]
        + result["code"]
    )


def estimate(result):
    """The compiler's estimate of a program, in seconds.

    It counts -1 for each operation that it cannot cost; what is over a whole
    number is the time of the others. A program of more than a second would be
    taken for a shorter one.
    """
    seconds = result["optimal_seconds"]
    return seconds - math.floor(seconds)


def refusal(message):
    """The result of a program that the compiler did not accept.

    Args:
        message: str. The compiler's.

    Returns:
        A dict: `status`, `message`, and `used`, the memory that a program needs
        which does not fit, such as "17.2G of 15.5G".
    """
    if "CompileTimeHbmOom" not in message:
        return {"status": "failed", "message": message[:600]}
    sizes = re.search(
        r"\(([\d.]+\w)\) exceeds available HBM \(([\d.]+\w)\)", message
    ) or re.search(r"Used ([\d.]+\w) of ([\d.]+\w) hbm", message)
    used = " of ".join(sizes.groups()) if sizes else ""
    return {"status": "out of memory", "message": message[:600], "used": used}


def summary(chip, result):
    """A result in a few words."""
    if result["status"] == "ok":
        return (
            f"compiled in {result['compile_seconds']:.0f} s, "
            f"{memory(result) / GIB:.2f} of {CHIPS[chip].hbm // GIB} GiB"
        )
    return _shortfall(result)


def sections(results):
    """The tables of docs/tpu_compile.md.

    Args:
        results: dict from "PROGRAM on CHIP" to the result.

    Returns:
        Dict from the name of the section to its text.
    """
    programs = (*NETWORKS, *EARLIER, *PAPERS_ORDER)
    networks = _table(NETWORK_COLUMNS, programs, _network, results)
    return {
        "networks": "\n\n".join(
            [networks, *_missing(results), orders(results)]
        ),
        "layers": _table(LAYER_COLUMNS, LAYERS, _layer, results),
    }


def orders(results):
    """A table of networks compiled by `auto` and by the paper's order.

    Args:
        results: as in `sections`.

    Returns:
        Markdown: how many times longer the paper's order takes, by the estimate
        and by the cycles of the listing.
    """
    row = functools.partial(_order, results)
    return _table(ORDER_COLUMNS, PAPERS_ORDER, row, results)


def _order(results, program, chip, papers):
    """Cells of a network by both; none where one was not compiled."""
    auto = program.key.replace(" einsum", "")
    ours = results.get(f"{auto} on {chip}", {})
    if not ours.get("status") == papers["status"] == "ok":
        return []
    seconds = estimate(ours), estimate(papers)
    cells = [auto, chip, *(f"{1e3 * x:.1f}" for x in seconds)]
    cells.append(f"{seconds[1] / seconds[0]:.2f}")
    cycles = ours.get("cycles"), papers.get("cycles")
    if all(cycles):
        cells.append(f"{cycles[1] / cycles[0]:.2f}")
    return cells


def _shortfall(result):
    status = result["status"]
    if status == "timed out":
        return f"not finished after {result['limit_seconds']} s"
    if status == "out of memory":
        return f"does not fit: {result['used'] or result['message']}"
    return f"failed: {result['message']}"


def _table(columns, programs, row, results):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for program in programs:
        for chip in CHIPS:
            result = results.get(f"{program.key} on {chip}")
            if result is None:
                continue
            if cells := row(program, chip, result):
                cells += [""] * (len(columns) - len(cells))
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _missing(results):
    """Sentences that name what was not tried, one per chip that was."""
    sentences = []
    for chip in CHIPS:
        if not any(f"{p.key} on {chip}" in results for p in NETWORKS):
            continue
        missing = collections.defaultdict(lambda: collections.defaultdict(list))
        for p in NETWORKS:
            if f"{p.key} on {chip}" not in results:
                missing[p.batch][p.image_size].append(p.name)
        parts = [
            f"with {batch} images "
            + "; ".join(
                f"at {size} px {', '.join(names)}"
                for size, names in sorted(sizes.items())
            )
            for batch, sizes in sorted(missing.items())
        ]
        if parts:
            sentences.append(
                f"Not compiled for {chip} as the engine stands: "
                f"{'; '.join(parts)}."
            )
    return sentences


def _network(program, chip, result):
    cells = [program.name, str(program.image_size), str(program.batch), chip]
    if result["status"] != "ok":
        return [*cells, _shortfall(result)]
    needed, size = memory(result) / GIB, CHIPS[chip].hbm // GIB
    share = 100 * result["flops"] / result["counted_flops"]
    return [
        *cells,
        _faults(result) or ("fits" if needed <= size else "does not fit"),
        f"{result['compile_seconds']:.0f}",
        f"{result['arguments'] / GIB:.2f}",
        f"{result['temporaries'] / GIB:.2f}",
        f"{needed:.2f} of {size}",
        f"{result['flops'] / 1e12:.3f} ({share:.0f})",
        _algorithms(result),
    ]


def _layer(program, chip, result):
    algorithm = program.name.partition(",")[0]
    if algorithm == "auto" and "algorithms" in result:
        algorithm = f"auto: {_algorithms(result)}"
    channels = program.changes["filters"]
    cells = [str(program.image_size), str(channels), str(program.batch)]
    cells += [algorithm, chip]
    if result["status"] != "ok":
        return [*cells, _shortfall(result)]
    more = "+" if result["optimal_seconds"] < 0 else ""
    cycles = result.get("cycles")
    return [
        *cells,
        _faults(result) or "compiles",
        f"{result['compile_seconds']:.0f}",
        f"{result['temporaries'] / 2**20:.0f}",
        f"{result['flops'] / 1e9:.1f}",
        f"{result['bytes_accessed'] / 2**20:.0f}",
        f"{1e3 * estimate(result):.2f}{more}",
        f"{cycles / 1e6:.2f}" if cycles else "",
    ]


def _faults(result):
    """What is wrong with a program although it compiles, or an empty text."""
    faults = [f"no kernel for {name}" for name in result["without_kernel"]]
    faults += [f"float64: {name}" for name in result["double"]]
    return "; ".join(faults)


def _algorithms(result):
    """Such as "4 query_first", or the name alone if there is one layer."""
    return ", ".join(
        f"{count} {name}" if count > 1 else name
        for name, count in result["algorithms"].items()
    )
