"""Tables of a global scope at other sizes: cropped or interpolated.

Entries are relative offsets, so the center of a table is exactly the table of a
smaller map. A larger map has offsets for which the table has no entry.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.layers import RelativePositionEmbedding
from lambdanet_tf.models.weight_names import named_layers


def resize_table(table: np.ndarray, entries: Sequence[int]) -> np.ndarray:
    """Fits a table of relative positions to maps of another size.

    The center stays the center. If an axis gets fewer entries, the outer ones
    are cut off, which is exact, because the others keep their meaning. If it
    gets more, they are interpolated linearly between the same two ends.

    Args:
        table: `(*entries, ...)`.
        entries: the new odd number of relative positions on each axis.
    """
    for axis, wanted in enumerate(entries):
        have = table.shape[axis]
        if wanted <= have:
            first = (have - wanted) // 2
            rows = np.arange(first, first + wanted)
            table = np.take(table, rows, axis)
            continue
        places = np.linspace(0, have - 1, wanted)
        low = np.minimum(places.astype(int), have - 2)
        share = (places - low).reshape([-1] + [1] * (table.ndim - 1 - axis))
        below, above = np.take(table, low, axis), np.take(table, low + 1, axis)
        table = ((1 - share) * below + share * above).astype(table.dtype)
    return table


def fit_tables(
    model: tf.keras.Model, arrays: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns arrays with global tables resized to those of the model."""
    fitted, is_stretched = dict(arrays), False
    for prefix, layer in named_layers(model):
        table = arrays.get(f"{prefix}embeddings")
        if (
            table is None
            or not isinstance(layer, RelativePositionEmbedding)
            or layer.scope is not None
            or table.ndim != len(layer.embeddings.shape)
        ):
            continue
        *entries, _, _ = layer.embeddings.shape
        fitted[f"{prefix}embeddings"] = resize_table(table, entries)
        sizes = zip(entries, table.shape, strict=False)
        is_stretched |= any(want > have for want, have in sizes)
    if is_stretched:
        warnings.warn(
            f"The inputs of {model.name!r} are larger than those that its "
            "weights were trained on, so its position embeddings are "
            "interpolated. Fine-tune the model at this size.",
            stacklevel=3,
        )
    return fitted
