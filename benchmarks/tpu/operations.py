"""Finds what a TPU cannot compute in a traced function.

It needs a kernel for every operation and results of static sizes, and has no
float64.
"""

import collections
import pathlib

import tensorflow as tf

# What tensorflow-tpu 2.20.0 has kernels for and the step of a network may have
# (not embeddings, quantization, linear algebra, arrays of TensorFlow 1), and
# what only marks a place.
KERNELS = {*pathlib.Path(__file__).with_name("kernels.txt").read_text().split()}
# What has a kernel, and results without a static size.
DYNAMIC = {"DynamicPartition", "ListDiff", "Unique", "UniqueV2", "Where"}
_DOUBLE = {tf.float64.as_datatype_enum, tf.complex128.as_datatype_enum}

# How often each type of operation; types without a kernel; types whose results
# have no static size; names of operations in float64 or complex128.
Audit = collections.namedtuple("Audit", "counts without_kernel dynamic double")


def audit(function):
    """Looks at every operation of a concrete function."""
    nodes = list(_reached_nodes(function.graph.as_graph_def()))
    counts = collections.Counter(node.op for node in nodes)
    return Audit(
        counts,
        tuple(sorted(counts.keys() - KERNELS)),
        tuple(sorted(counts.keys() & DYNAMIC)),
        tuple(node.name for node in nodes if _is_double(node)),
    )


def _reached_nodes(graph_def):
    """The nodes of a graph and of every function that it calls, once each."""
    library = {f.signature.name: f.node_def for f in graph_def.library.function}
    waiting, seen = [graph_def.node], set()
    while waiting:
        for node in waiting.pop():
            called = {node.op}
            for value in node.attr.values():
                called |= {value.func.name, *(x.name for x in value.list.func)}
            called &= library.keys() - seen
            seen |= called
            waiting += [library[name] for name in called]
            if node.op not in library:
                yield node


def _is_double(node):
    types = [{x.type, *x.list.type} for x in node.attr.values()]
    return bool(_DOUBLE & set().union(*types))
