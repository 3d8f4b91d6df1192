"""Finds what a TPU cannot compute in a traced function.

Its compiler needs a kernel for every operation. It has some for operations
whose results have a size that depends on the data, but pads them or refuses;
and it has no float64.
"""

import collections
import dataclasses
import functools
import pathlib

import tensorflow as tf

KERNELS = pathlib.Path(__file__).with_name("kernels.txt")
# What the compiler itself takes apart, or what only marks a place.
STRUCTURE = {
    *("Case", "If", "NoOp", "PartitionedCall", "Placeholder", "While"),
    *("StatefulPartitionedCall", "StatelessCase", "StatelessIf"),
    *("StatelessWhile", "TPUCompilationResult", "TPUReplicateMetadata"),
    *("TPUReplicatedInput", "TPUReplicatedOutput"),
}
# What has a kernel, and results without a static size.
DYNAMIC = {"DynamicPartition", "ListDiff", "Unique", "UniqueV2", "Where"}
_DOUBLE = {tf.float64.as_datatype_enum, tf.complex128.as_datatype_enum}


@dataclasses.dataclass(frozen=True)
class Audit:
    """What was found in a function and in all that it calls."""

    counts: collections.Counter  # of each type of operation
    without_kernel: tuple[str, ...]  # types that a TPU has no kernel for
    dynamic: tuple[str, ...]  # types whose results have no static size
    double: tuple[str, ...]  # names of operations in float64 or complex128


def audit(function):
    """Looks at every operation of a concrete function."""
    nodes = list(reached_nodes(function.graph.as_graph_def()))
    counts = collections.Counter(node.op for node in nodes)
    return Audit(
        counts,
        tuple(sorted(counts.keys() - kernels() - STRUCTURE)),
        tuple(sorted(counts.keys() & DYNAMIC)),
        tuple(node.name for node in nodes if _is_double(node)),
    )


@functools.cache
def kernels():
    """The operations that a TPU has a kernel for."""
    lines = KERNELS.read_text().splitlines()
    lines = [line for line in lines if not line.startswith("#")]
    return frozenset(" ".join(lines).split())


def reached_nodes(graph_def):
    """The nodes of a graph and of every function that it calls, once each.

    A call of a function by its name is no operation and is left out.
    """
    library = {f.signature.name: f.node_def for f in graph_def.library.function}
    waiting, seen = [graph_def.node], set()
    while waiting:
        for node in waiting.pop():
            called = {node.op, *_functions(node)} & set(library) - seen
            seen |= called
            waiting += [library[name] for name in called]
            if node.op not in library:
                yield node


def _functions(node):
    for value in node.attr.values():
        yield value.func.name
        yield from (function.name for function in value.list.func)


def _is_double(node):
    return any(
        _DOUBLE & {value.type, *value.list.type} for value in node.attr.values()
    )
