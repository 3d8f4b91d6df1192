"""Measures the rounding errors of every algorithm for the position lambdas.

    python -m benchmarks.layers.rounding        two minutes

Each is compared with sums over all pairs in float64 NumPy, of inputs rounded to
its dtype. An error is the largest absolute difference over the largest value.
"""

import numpy as np
import tensorflow as tf

from benchmarks import records
from lambdanet_tf import ops

DTYPES = ("float64", "float32", "bfloat16")
SEED, BATCH, HEADS, KEY, VALUE, INTRA = 2102, 2, 4, 16, 32, 2
# Size, entries and stride of each axis.
GEOMETRIES = {
    "7x7, global": [(7, 13, 1)] * 2,
    "9x13, scope 5": [(9, 5, 1), (13, 5, 1)],
    "14x14, scope 7": [(14, 7, 1)] * 2,
    "21x20, scope 23": [(21, 23, 1), (20, 23, 1)],
    "15x15, scope 5, strides 2": [(15, 5, 2)] * 2,
    "4x5x6, scope 3": [(4, 3, 1), (5, 3, 1), (6, 3, 1)],
    "257, scope 63": [(257, 63, 1)],
    "300, global": [(300, 599, 1)],
    "200, past of 32, causal": [(200, 32, 1)],
}


def geometry_of(name):
    make = ops.causal_axis if "causal" in name else ops.same_axis
    return ops.Geometry.of(make(*axis) for axis in GEOMETRIES[name])


def draw(name, dtype):
    """Queries, values, table and the gradient of the output, rounded."""
    rng, geometry = np.random.default_rng(SEED), geometry_of(name)
    n, m = np.prod(geometry.queries), np.prod(geometry.context)
    entries = [axis[1] for axis in GEOMETRIES[name]]
    shapes = (
        (BATCH, n, HEADS, KEY),
        (BATCH, m, VALUE, INTRA),
        (*entries, KEY, INTRA),
        (BATCH, n, HEADS, VALUE),
    )
    return [tf.cast(rng.normal(size=shape), dtype) for shape in shapes]


def reference(geometry, arrays):
    """The output and its gradients, summed over all pairs in float64."""
    q, v, table, g = (tf.cast(x, tf.float64).numpy() for x in arrays)
    index = ops.relative_index(geometry).numpy()  # [n, m], -1 outside
    flat = np.asarray(geometry.crop(table)).reshape(-1, KEY, INTRA)
    pairs = np.where(index[..., None, None] < 0, 0.0, flat[index])
    lambdas = np.einsum("nmku,bmvu->bnkv", pairs, v, optimize=True)
    outer = np.einsum("bnhk,bnhv->bnkv", q, g)
    by_pair = np.einsum("bnkv,bmvu->nmku", outer, v, optimize=True)
    by_entry = np.zeros_like(flat)
    np.add.at(by_entry, index[index >= 0], by_pair[index >= 0])
    return (
        np.einsum("bnhk,bnkv->bnhv", q, lambdas),
        np.einsum("bnhv,bnkv->bnhk", g, lambdas),
        np.einsum("nmku,bnkv->bmvu", pairs, outer, optimize=True),
        by_entry,
    )


def computed(geometry, arrays, implementation):
    *sources, g = arrays
    q, *others = sources
    with tf.GradientTape() as tape:
        tape.watch(sources)
        inputs = q, None, *others, geometry
        output, _ = ops.lambda_output(*inputs, implementation)
    by_q, by_v, by_table = tape.gradient(output, sources, g)
    by_table = np.asarray(geometry.crop(tf.cast(by_table, tf.float64).numpy()))
    return output, by_q, by_v, by_table.reshape(-1, KEY, INTRA)


def errors(implementation, dtype):
    """The largest error of the output, and of the gradients, and where."""
    found = {"output": [(0.0, "")], "gradients": [(0.0, "")]}
    for name in GEOMETRIES:
        geometry, arrays = geometry_of(name), draw(name, dtype)
        if implementation not in ops.implementations(geometry.rank):
            continue
        places = "output", *["gradients"] * 3
        got = computed(geometry, arrays, implementation)
        expected = reference(geometry, arrays)
        for place, have, want in zip(places, got, expected, strict=True):
            have = tf.cast(have, tf.float64).numpy()
            error = float(np.max(np.abs(have - want)) / np.max(np.abs(want)))
            found[place].append((error, name))
    worst = {place: max(pairs) for place, pairs in found.items()}
    return {x: {"value": error, "at": at} for x, (error, at) in worst.items()}


@records.script("rounding")
def main(recorder, _):
    cases = records.cases(algorithm=ops.implementations(), dtype=DTYPES)
    recorder.fill(cases, lambda case: errors(*case.values()))
