"""The plan of a position part: an algorithm, and blocks of which size.

A formula of `costs` says what each algorithm takes; the least is taken.
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

# What a batch of unknown size is taken for: enough to share the table's cost.
TYPICAL_BATCH = 8
# Numbers of an intermediate, 1 GiB, beyond which a smaller one is preferred.
_LARGEST = 2**28


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a position output is computed.

    Attributes:
        algorithm: one of `implementations()` but "auto".
        sizes: queries of a block per axis; empty where nothing is cut.
        operations: of a batch, two for each multiply-add; 0 where sizes are
            unknown.
        seconds: estimate for a batch; a figure to compare, not a promise.
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
    """A way to compute position outputs.

    Attributes:
        run: function of queries `(batch, n, heads, key_dim)`, values `(batch,
            *context, value_dim, intra_depth)`, the cropped table `(*taps,
            key_dim, intra_depth)`, and the place: the `Geometry`, or its
            `Blocks`. Returns `(batch, n, heads, value_dim)`.
        work: function of place, `Dims` and size of a batch to a `Work`.
        blocks: function of a geometry that yields `Blocks`; None without.
        needs_static: whether sizes must be known when it is traced.
        mixes_positions: whether rounding errors of a position reach positions
            outside its scope.
        ranks: axes of the geometries that it serves.
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
        """Returns the sizes of blocks and the place of each way to cut."""
        if self.blocks is None:
            return [((), geometry)]
        return [(blocks.sizes, blocks) for blocks in self.blocks(geometry)]


# The first that needs no static sizes is "auto" where sizes are unknown.
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
    # By name alone: hardly faster than `conv2d` anywhere, and often slower.
    "depthwise": Algorithm(
        depthwise, costs.depthwise, needs_static=False, ranks=(1, 2), devices=()
    ),
}


def implementations(rank=None):
    """Returns what `implementation` can be, as a tuple that begins by "auto".

    Args:
        rank: int. Spatial axes that are to be served; None for any.
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
    """Chooses how a position output is computed.

    Args:
        geometry: a `Geometry`, or None where sizes are not static: then only
            convolutions remain.
        dims: `Dims`.
        implementation: one of `implementations()`. Of an algorithm that
            does not serve the rank of the geometry, it counts as "auto".
        device: key of `DEVICES`, or None for `target_device()`.
        training: bool. Whether gradients count.
        batch: int. Examples of a batch; None where that is unknown.

    Raises:
        ValueError: if the name is unknown, needs static sizes that `geometry`
            does not have, or transforms that the device has not.
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
            f"`implementation={name!r}` computes sequences by fast Fourier "
            f"transforms, which {device!r} has not. Use 'auto' or another one."
        )
    logging.getLogger(__name__).debug(
        "Position lambdas of %s on %s: %s", geometry.context, device, plan
    )
    return plan


def _without_sizes(name):
    """Returns the algorithm where sizes are not static."""
    able = [key for key, one in ALGORITHMS.items() if not one.needs_static]
    if name == "auto":
        return able[0]
    if name not in able:
        raise ValueError(
            f"`implementation={name!r}` needs static spatial sizes. Received "
            "inputs of unknown size: fix it, or use one of "
            f"{tuple(able)} or 'auto'."
        )
    return name


def candidates(device, rank):
    """Returns the algorithms that "auto" chooses from, for so many axes."""
    return tuple(
        name
        for name, algorithm in ALGORITHMS.items()
        if device in algorithm.devices and rank in algorithm.ranks
    )


@functools.lru_cache(maxsize=1024)
def best_plan(geometry, dims, names, rates, training, batch):
    """Returns the plan with the smallest estimate of some algorithms.

    Rates are a row of `DEVICES`, or another one.
    """
    found = []
    for name in names:
        for sizes, place in ALGORITHMS[name].plans(geometry):
            work = ALGORITHMS[name].work(place, dims, batch)
            seconds = work.seconds(rates, training)
            plan = Plan(name, sizes, work.operations, seconds)
            found.append((work.largest > _LARGEST, seconds, plan))
    return min(found, key=lambda one: one[:2])[2]
