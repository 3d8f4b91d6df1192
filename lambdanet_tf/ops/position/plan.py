"""The plan of a position part: an algorithm and its block sizes.

`costs` estimates the time of each algorithm, and the fastest is chosen.
"""

import dataclasses
import functools
import logging
import math
from collections.abc import Callable
from typing import Any

from lambdanet_tf.arguments import one_of
from lambdanet_tf.ops.blocks import block_choices
from lambdanet_tf.ops.devices import DEVICES
from lambdanet_tf.ops.devices import target_device
from lambdanet_tf.ops.position import costs
from lambdanet_tf.ops.position.convolution import conv2d
from lambdanet_tf.ops.position.convolution import depthwise
from lambdanet_tf.ops.position.einsum import einsum
from lambdanet_tf.ops.position.fft import fft
from lambdanet_tf.ops.position.fourier import fourier
from lambdanet_tf.ops.position.products import lambda_first
from lambdanet_tf.ops.position.products import query_first

# Assumed for a batch of unknown size: large enough to share the table's cost.
TYPICAL_BATCH = 8
# We avoid intermediates with more numbers than this (1 GiB), if we can.
_LARGEST = 2**28


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a layer computes its position output.

    Attributes:
        algorithm: one of `implementations()`, except "auto".
        sizes: queries of a block per axis; empty if the algorithm has none.
        operations: of a batch, two per multiply-add; 0 if sizes are unknown.
        seconds: estimated time for a batch; use it only to compare plans.
    """

    algorithm: str
    sizes: tuple[int, ...] = ()
    operations: int = 0
    seconds: float = math.inf

    def __str__(self):
        blocks = "x".join(map(str, self.sizes))
        return f"{self.algorithm}({blocks})" if blocks else self.algorithm


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An algorithm for position outputs.

    Attributes:
        run: function of queries `(batch, n, heads, key_dim)`, values `(batch,
            *context, value_dim, intra_depth)`, the cropped table `(*taps,
            key_dim, intra_depth)`, and the place: the `Geometry`, or its
            `Blocks`. Returns `(batch, n, heads, value_dim)`.
        work: function of place, `Dims` and batch size that returns a `Work`.
        blocks: function of a geometry that yields `Blocks`, or None.
        needs_static: whether sizes must be static.
        mixes_positions: whether rounding errors of a position reach positions
            outside its scope.
        ranks: the numbers of spatial axes that it supports.
        devices: names of the `DEVICES` on which "auto" considers it.
    """

    run: Callable[..., Any]
    work: Callable[..., Any]
    blocks: Callable[..., Any] | None = None
    needs_static: bool = True
    mixes_positions: bool = False
    ranks: tuple[int, ...] = (1, 2, 3)
    devices: tuple[str, ...] = tuple(DEVICES)

    def plans(self, geometry):
        """Returns block sizes and place, for each way to cut a geometry."""
        if self.blocks is None:
            return [((), geometry)]
        return [(blocks.sizes, blocks) for blocks in self.blocks(geometry)]


# If sizes are unknown, "auto" is the first that needs no static sizes.
ALGORITHMS = {
    # The paper's order, to compare with.
    "einsum": Algorithm(einsum, costs.einsum, devices=()),
    "lambda_first": Algorithm(lambda_first, costs.lambda_first, block_choices),
    "query_first": Algorithm(query_first, costs.query_first, block_choices),
    "fourier": Algorithm(
        fourier,
        costs.fourier,
        blocks=functools.partial(block_choices, first_whole=True),
        mixes_positions=True,
        ranks=(2, 3),
        devices=("cpu", "portable"),
    ),
    "fft": Algorithm(
        fft,
        costs.fft,
        mixes_positions=True,
        ranks=(1,),
        devices=("cpu", "gpu", "tpu"),
    ),
    "conv2d": Algorithm(conv2d, costs.convolution, needs_static=False),
    # Not in "auto": hardly ever faster than `conv2d`, and often slower.
    "depthwise": Algorithm(
        depthwise, costs.depthwise, needs_static=False, ranks=(1, 2), devices=()
    ),
}


def implementations(rank=None):
    """Returns all values of `implementation`, "auto" first.

    Args:
        rank: int. Number of spatial axes to support; None for any.
    """
    names = [x for x, one in ALGORITHMS.items() if rank in (None, *one.ranks)]
    return ("auto", *names)


def plan_for(
    geometry,
    dims,
    implementation="auto",
    device=None,
    training=True,
    batch=None,
):
    """Chooses how to compute a position output.

    Args:
        geometry: a `Geometry`, or None if sizes are not static; then only
            convolutions remain.
        dims: `Dims`.
        implementation: one of `implementations()`. If the algorithm does not
            support the rank of the geometry, "auto" replaces it.
        device: key of `DEVICES`, or None for `target_device()`.
        training: bool. Whether to count the time of gradients.
        batch: int. Examples of a batch; None if unknown.

    Raises:
        ValueError: if the name is unknown, or if the algorithm needs static
            sizes that `geometry` lacks or transforms that the device lacks.
    """
    name = one_of("implementation", implementation, implementations())
    if geometry is not None and name not in implementations(geometry.rank):
        name = "auto"
    if geometry is None or not geometry.is_static:
        return Plan(_without_sizes(name))
    device = device or target_device()
    names = candidates(device, geometry.rank) if name == "auto" else (name,)
    plan = best_plan(
        geometry,
        dims,
        names,
        DEVICES[device],
        bool(training),
        batch or TYPICAL_BATCH,
    )
    if math.isinf(plan.seconds):
        raise ValueError(
            f"`implementation={name!r}` needs fast Fourier transforms, which "
            f"the device {device!r} does not have. Use 'auto' instead."
        )
    logging.getLogger(__name__).debug(
        "Position lambdas of %s on %s: %s", geometry.context, device, plan
    )
    return plan


def _without_sizes(name):
    """Returns the algorithm to use if sizes are not static."""
    able = [key for key, one in ALGORITHMS.items() if not one.needs_static]
    if name == "auto":
        return able[0]
    if name not in able:
        raise ValueError(
            f"`implementation={name!r}` needs static spatial sizes. Received: "
            "inputs of unknown size. Fix their size, or use 'auto' or one of "
            f"{tuple(able)}."
        )
    return name


def candidates(device, rank):
    """Returns the algorithms that "auto" chooses from."""
    return tuple(
        name
        for name, algorithm in ALGORITHMS.items()
        if device in algorithm.devices and rank in algorithm.ranks
    )


@functools.lru_cache(maxsize=1024)
def best_plan(geometry, dims, names, rates, training, batch):
    """Returns the plan of these algorithms with the shortest estimate.

    `rates` is a row of `DEVICES`, or other `Rates`.
    """
    found = []
    for name in names:
        for sizes, place in ALGORITHMS[name].plans(geometry):
            work = ALGORITHMS[name].work(place, dims, batch)
            seconds = work.seconds(rates, training)
            plan = Plan(name, sizes, work.operations, seconds)
            found.append((work.largest > _LARGEST, seconds, plan))
    return min(found, key=lambda one: one[:2])[2]
