"""What a query of a lambda layer read, for people to look at."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.layers.base import BaseLayer


class Readable(BaseLayer):
    """Adds `read` to lambda layers.

    Subclasses bring the arguments of a call to what the equation takes, in
    `_operands`.
    """

    def read(self, inputs, position=None, **arguments) -> ops.Reading:
        """Returns what queries read from each context position, in inference.

        A lambda layer forms no attention map, but implies one: with these
        weights applied to the values, and the bias added, each output is
        the layer's own. The content and the position part are apart.

        Args:
            inputs: as in a call.
            position: of the queries, on the grid of the outputs: one index per
                spatial axis, or a list of such; on one axis an int or a list
                of ints. None for all of them, in row-major order.
            **arguments: as in a call: masks, and whatever else it takes.

        Returns:
            An `ops.Reading`, in float32 or wider: weights `(batch, positions,
            heads, *context grid, intra_depth)`, and what they apply to.

        Raises:
            ValueError: if the layer is not built, a position is not on the
                grid, or sizes are not known.
        """
        given: dict[str, Any] = {"inputs": inputs, **arguments}
        inputs = tf.convert_to_tensor(given.pop("inputs"))
        mask = getattr(inputs, "_keras_mask", None)
        if mask is not None:
            given.setdefault("mask", mask)
        inputs = tf.cast(inputs, self.compute_dtype)
        _, grids, operands = self._operands(inputs, **given)
        places = _places(position, grids[0])
        reading = self._reading(*operands, places, grids[0])
        return _on_grid(reading, grids[1])


def _places(position, grid):
    """One index per axis for each query that is looked at."""
    if not all(isinstance(size, int) for size in grid):
        raise ValueError(
            "`inputs` must have known sizes to be read. Received: a grid of "
            f"{grid}."
        )
    if position is None:
        return tuple(np.ndindex(*grid))
    places = np.asarray(position)
    if places.ndim < 2:
        one_axis = len(grid) == 1
        places = places.reshape([-1, 1] if one_axis else [1, -1])
    fits = places.dtype.kind in "iu" and places.shape[1:] == (len(grid),)
    if not (fits and places.size and np.all((places >= 0) & (places < grid))):
        raise ValueError(
            "`position` must be one index per axis of the layer's output, "
            f"{grid}, or a list of such. Received: position={position!r}."
        )
    return tuple(tuple(map(int, place)) for place in places)


def _on_grid(reading, grid):
    """A reading whose context has the axes of its grid."""
    batch, places, heads = reading.bias.shape
    intra = reading.values.shape[-1]
    shape = [batch, places, heads, *grid, intra]
    return dataclasses.replace(
        reading,
        content=tf.reshape(reading.content, shape),
        position=tf.reshape(reading.position, shape),
        values=tf.reshape(
            reading.values, [batch, *grid, *reading.values.shape[2:]]
        ),
    )
