"""Throughput of a pipeline alone, in images per second."""

import dataclasses
import time
from collections.abc import Callable

import tensorflow as tf

_SECONDS_BETWEEN = 0.5


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Images and seconds of reading from a pipeline.

    Attributes:
        images: after the first batch.
        seconds: what they took.
        first_seconds: what the first batch took: opening files, filling
            the shuffle buffer.
    """

    images: int
    seconds: float
    first_seconds: float

    @property
    def images_per_second(self) -> float:
        """The rate after the first batch."""
        return self.images / self.seconds


def throughput(
    batches: tf.data.Dataset,
    seconds: float = 3.0,
    show: Callable[[Throughput], None] | None = None,
) -> Throughput:
    """Measures how fast batches come, for some seconds.

    Args:
        batches: a dataset of tuples, images first.
        seconds: how long, after the first batch; at least one more batch is
            read.
        show: called with the `Throughput` so far, twice a second.

    Raises:
        ValueError: if there are not two batches.
    """
    start = time.perf_counter()
    iterator = iter(batches)
    if next(iterator, None) is None:
        raise ValueError("`batches` must hold two batches. Received: none.")
    begin = shown = time.perf_counter()
    result, images = None, 0
    for parts in iterator:
        images += parts[0].shape[0]
        now = time.perf_counter()
        result = Throughput(images, now - begin, begin - start)
        if show and now - shown >= _SECONDS_BETWEEN:
            shown = now
            show(result)
        if result.seconds >= seconds:
            break
    if result is None:
        raise ValueError("`batches` must hold two batches. Received: one.")
    return result
