"""Throughput of a pipeline alone, in images per second."""

import dataclasses
import time

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Images and seconds of reading from a pipeline.

    Attributes:
        images: after the first batch.
        seconds: what they took.
        first_seconds: what the first batch took: opening files, filling
            the shuffle buffer.

    Examples:
        >>> Throughput(
        ...     images=100, seconds=2.0, first_seconds=0.5
        ... ).images_per_second
        50.0
    """

    images: int
    seconds: float
    first_seconds: float

    @property
    def images_per_second(self) -> float:
        """The rate after the first batch."""
        return self.images / self.seconds


def throughput(batches: tf.data.Dataset, seconds: float = 3.0) -> Throughput:
    """Measures how fast batches come, for some seconds.

    Args:
        batches: a dataset of tuples, images first.
        seconds: how long, after the first batch; at least one more batch is
            read.

    Returns:
        A `Throughput`: what was read, and in how many seconds.

    Raises:
        ValueError: if there are not two batches.

    Examples:
        >>> batches = tf.data.Dataset.from_tensors((tf.zeros([4, 8, 8, 1]),))
        >>> throughput(batches.repeat(), seconds=0.01).images >= 4
        True
    """
    start, begin, images = time.perf_counter(), None, 0
    result = None
    for parts in batches:
        now = time.perf_counter()
        if begin is None:
            begin = now
            continue
        images += parts[0].shape[0]
        result = Throughput(images, now - begin, begin - start)
        if result.seconds >= seconds:
            break
    if result is None:
        received = "none" if begin is None else "one"
        raise ValueError(
            f"`batches` must hold two batches. Received: {received}."
        )
    return result
