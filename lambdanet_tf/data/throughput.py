"""How fast a pipeline is on its own."""

import dataclasses
import time

_SECONDS_BETWEEN = 0.5


@dataclasses.dataclass(frozen=True)
class Throughput:
    """What was read from a pipeline in some time.

    Attributes:
        images: int. After the first batch.
        seconds: float. What they took.
        first_seconds: float. What the first batch took: opening files, filling
            the shuffle buffer.
    """

    images: int
    seconds: float
    first_seconds: float

    @property
    def images_per_second(self):
        """After the first batch."""
        return self.images / self.seconds


def throughput(batches, seconds=3.0, show=None):
    """Reads batches as fast as they come, for some seconds.

    Args:
        batches: `tf.data.Dataset` of tuples, images first.
        seconds: float. How long, after the first batch; at least one more batch
            is read.
        show: callable that is given the `Throughput` so far, twice a second; or
            None.

    Returns:
        A `Throughput`.

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
