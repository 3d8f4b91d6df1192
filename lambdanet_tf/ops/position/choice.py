"""The choice of an algorithm, from static shapes and a model of its cost."""

import dataclasses
import functools
import logging
import math

from lambdanet_tf.arguments import one_of
from lambdanet_tf.ops.devices import DEVICES
from lambdanet_tf.ops.devices import target_device
from lambdanet_tf.ops.position import ALGORITHMS
from lambdanet_tf.ops.position.cost import CostModel
from lambdanet_tf.ops.position.cost import Plan

# What a batch of unknown size is taken for: enough to share the table's cost.
TYPICAL_BATCH = 8
_MAX_SLOWDOWN = 3  # of an algorithm that fits, compared with the fastest
# Bytes; smaller blocks have smaller tables, which are held at every size of
# the batch.
_HUGE_TABLE = 396 * 2**20


def implementations(rank=None):
    """Returns what `implementation` can be, as a tuple that begins by "auto".

    Args:
        rank: int. Spatial axes that are to be served; None for any.

    Returns:
        A tuple of names.

    Examples:
        >>> implementations(rank=3)
        ('auto', 'einsum', 'lambda_first', 'query_first', 'fourier', ...)
    """
    names = [
        name
        for name, algorithm in ALGORITHMS.items()
        if rank is None or rank in algorithm.ranks
    ]
    return ("auto", *names)


def implementation_name(name):
    """Returns the name of an implementation.

    Args:
        name: one of `implementations()`.

    Raises:
        ValueError: if it is none.
    """
    return one_of("implementation", name, implementations())


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
        implementation: a name that `implementation_name` takes. Of an
            algorithm that does not serve the rank of the geometry, it counts
            as "auto".
        device: key of `DEVICES`, or None for `target_device()`.
        training: bool. Whether gradients count.
        batch: int. Examples of a batch; None where that is unknown.

    Returns:
        The `Plan` with the smallest estimate, of the named algorithm or, for
        `"auto"`, of all that are worth considering.

    Raises:
        ValueError: if the name is unknown, needs static sizes that
            `geometry` does not have, or transforms that the device has not.

    Examples:
        >>> axes = [ops.same_axis(32, 7), ops.same_axis(32, 7)]
        >>> geometry = ops.Geometry.of(axes)
        >>> dims = ops.Dims(num_heads=4, key_dim=16, value_dim=32)
        >>> plan_for(geometry, dims, "einsum").algorithm
        'einsum'
    """
    name = implementation_name(implementation)
    if geometry is not None and name not in implementations(geometry.rank):
        name = "auto"
    if geometry is None or not geometry.is_static:
        return Plan(_without_sizes(name))
    device = device or target_device()
    plan = _best(geometry, dims, name, device, bool(training), batch)
    if math.isinf(plan.seconds):
        raise ValueError(
            f"`implementation={name!r}` computes sequences by fast Fourier "
            f"transforms, which {device!r} has not. Use 'auto' or another one."
        )
    return plan


def _without_sizes(name):
    """The algorithm where sizes are not static."""
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


@functools.lru_cache(maxsize=1024)
def _best(geometry, dims, implementation, device, training, batch):
    row = DEVICES[device]
    names = candidates(row, geometry.rank)
    if implementation not in ("auto", *names):
        names.append(implementation)
    best = {
        name: best_plan(geometry, dims, name, row, training, batch)
        for name in names
    }
    if implementation == "auto":
        limit = _MAX_SLOWDOWN * min(plan.seconds for plan in best.values())
        implementation = min(
            best,
            key=lambda name: (
                best[name].seconds > limit,
                not _fits(best[name], batch or TYPICAL_BATCH, row.memory),
                best[name].seconds,
            ),
        )
    chosen = best.pop(implementation)
    others = sorted(best.values(), key=lambda plan: plan.seconds)
    logging.getLogger(__name__).debug(
        "Position lambdas of %s on %s: %s", geometry.context, device, chosen
    )
    return dataclasses.replace(chosen, alternatives=tuple(others))


def best_plan(geometry, dims, algorithm, device, training=True, batch=None):
    """Chooses the blocks of one algorithm.

    Args:
        geometry: a static `Geometry`.
        dims: `Dims`.
        algorithm: key of `ALGORITHMS`.
        device: a `Device`, of `DEVICES` or not.
        training: bool. Whether gradients count.
        batch: int. Examples of a batch; None where that is unknown.

    Returns:
        The `Plan` with the smallest estimate, of those that fit if any does.

    Examples:
        >>> axes = [ops.same_axis(32, 7), ops.same_axis(32, 7)]
        >>> geometry = ops.Geometry.of(axes)
        >>> dims = ops.Dims(num_heads=4, key_dim=16, value_dim=32)
        >>> best_plan(geometry, dims, "einsum", ops.DEVICES["cpu"]).algorithm
        'einsum'
    """
    batch = batch or TYPICAL_BATCH
    new_cost = functools.partial(CostModel, algorithm, device, training, batch)
    return min(
        ALGORITHMS[algorithm].costs(geometry, dims, new_cost),
        key=lambda plan: (
            not _fits(plan, batch, device.memory),
            plan.table_memory > _HUGE_TABLE,
            plan.seconds,
        ),
    )


def candidates(device, rank):
    """Returns the algorithms that `"auto"` chooses from, as a list.

    Args:
        device: a `Device`, of `DEVICES` or not.
        rank: int. Axes of the geometry.

    Returns:
        List of keys of `ALGORITHMS`.

    Examples:
        >>> set(candidates(ops.DEVICES["cpu"], 2)) <= set(ops.ALGORITHMS)
        True
    """
    return [
        name
        for name, algorithm in ALGORITHMS.items()
        if device.name in algorithm.devices and rank in algorithm.ranks
    ]


def _fits(plan, batch, available):
    return batch * plan.memory + plan.table_memory <= available
