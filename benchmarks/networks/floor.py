"""Measures how fast a network of lambda layers could be on this CPU at best.

    python -m benchmarks.networks.floor                  three minutes
    python -m benchmarks.networks.floor --batch 1 --size 64 --seconds 1

LLLL and CCCC of `benchmarks.networks.speed` in inference, in turns, and LLLL
without its position lambdas; these as if they cost nothing but their products,
at the rate of a large one, and their largest intermediates, at that of a copy.
"""

import unittest.mock

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.layers import speed as layers_speed
from benchmarks.networks import speed
from lambdanet_tf import analysis
from lambdanet_tf import ops
from lambdanet_tf.ops.lambdas import lambda_step

SIZE = 64 * 2**20  # bytes of what is copied to measure the bandwidth
# How often the largest intermediate, or one of its size, is written or read:
# scores, lambdas; with a transform, before and after the inverse.
MOVES = {"fourier": 4}
FEWEST_MOVES = 2


def copy_rate():
    """Bytes per second, read or written, of negating a large array."""
    array = tf.random.normal([SIZE // 4])
    negated = tf.function(lambda: -array, autograph=False)
    taken = timing.turns({"copy": negated}, 0, least=9)["copy"]
    return 2 * SIZE / timing.median(taken)


def position_work(model, batch):
    """Operations and bytes that position lambdas cost a model at least.

    Of their products, and of their largest intermediates, written and read.
    """
    operations = moved = 0
    for layer in analysis.lambda_layers(model):
        plan = layer.inference_plan
        moves = MOVES.get(plan.algorithm, FEWEST_MOVES)
        operations += batch * plan.operations + plan.table_operations
        moved += moves * batch * plan.intermediate
    return operations, moved


def without_position_lambdas(queries, keys, values, *others):
    """Takes the place of `ops.lambda_step`."""
    _, _, _, normalization, masks, _, state = others
    return lambda_step(
        *(queries, keys, values, None, None, "auto", normalization, masks),
        state=state,
    )


def main(arguments=None):
    sizes = {"batch": 8, "size": speed.IMAGE_SIZE}
    recorder, options = records.start(
        "floor", __doc__, arguments, seconds=30.0, **sizes
    )
    batch, size = options.batch, options.size
    model = speed.build("LLLL", size)
    functions = {
        "CCCC": speed.steps("CCCC", batch, size)[0],
        "LLLL": speed.compiled_steps(model, batch, size)[0],
        "rest": speed.compiled_steps(model, batch, size)[0],
    }
    with unittest.mock.patch.object(
        ops, "lambda_step", without_position_lambdas
    ):
        functions["rest"]()  # traced with it
    operations, moved = position_work(model, batch)
    recorder.note(
        {"batch": batch, "size": size},
        seconds=timing.turns(functions, options.seconds),
        operations=operations,
        bytes=moved,
        matrix_rate=layers_speed.matrix_rate(),
        copy_rate=copy_rate(),
    )


if __name__ == "__main__":
    main()
