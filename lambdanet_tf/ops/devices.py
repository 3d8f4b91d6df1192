"""Devices: how fast each is, which one plans target, and precision.

Sums over positions run in float32 or wider. Matrix units sum half precisions in
float32, and so does `tf.matmul` on a CPU. TensorFlow's other CPU operations sum
in the dtype of their operands: in bfloat16, a sum of ones stops near 256.
"""

import contextlib
import dataclasses
import threading
import weakref

import tensorflow as tf

from lambdanet_tf.arguments import one_of


@dataclasses.dataclass(frozen=True)
class Rates:
    """How fast a device computes in float32.

    Attributes:
        flops: operations per second of a large matrix product.
        inner: inner length at which a product runs at half that rate.
        bandwidth: bytes per second of reading and writing intermediates.
        launch: seconds that a small operation takes, whatever its size.
        training: by which factor gradients slow down reading and writing.
        convolution: rate of a convolution relative to `flops`. It may exceed
            1, because we count products with padding that a device skips.
        convolution_training: `convolution` when gradients count, too.
        convolution_inner: products per output number at which a convolution
            runs at half of these rates.
        fourier: operations per second of fast Fourier transforms; 0 if the
            device has none.
    """

    flops: float
    inner: float
    bandwidth: float
    launch: float
    training: float
    convolution: float
    convolution_training: float
    convolution_inner: float
    fourier: float


# We fitted the CPU rates to measured times of random layers
# (`benchmarks.layers.regret`), and the TPU rates to the estimates of the v3
# compiler in bfloat16. The GPU rates are the vendor's, for an H200. "portable"
# is for TFLite and ONNX files, which have no fast Fourier transforms. A new row
# may also need a place in `target_device`, its half precisions in
# `factor_dtype`, and its name in `devices=` of "fourier" and "fft" (plan.py).
DEVICES = {
    "cpu": Rates(1.4e11, 4.1, 1e10, 1.1e-5, 2.6, 1.25, 0.22, 52, 1.4e10),
    "gpu": Rates(4e13, 64, 4e12, 8e-6, 3.0, 0.3, 0.3, 0, 1e12),
    "tpu": Rates(1e13, 16, 4.5e11, 4e-6, 1.0, 0.3, 0.3, 0, 1e11),
    "portable": Rates(1.4e11, 4.1, 1e10, 1.1e-5, 2.6, 1.25, 0.22, 52, 0),
}

# The devices of `planning_for`, innermost last: one stack per thread, which its
# outermost graph also finds.
_targets = threading.local()
_targets_of_graph = weakref.WeakKeyDictionary()


def target_device():
    """Returns the key of `DEVICES` that plans are made for."""
    targets = getattr(_targets, "stack", None)
    if not targets:
        # A replica runs in its own thread, but in the graph of its strategy.
        targets = _targets_of_graph.get(_outermost_graph())
    if targets:
        return targets[-1]
    for device in ("TPU", "GPU"):
        if tf.config.list_logical_devices(device):
            return device.lower()
    return "cpu"


@contextlib.contextmanager
def planning_for(device):
    """Makes plans for a device that this process may not have.

    It applies to the thread that enters it, to the functions that this thread
    traces, and to replicas of its strategies. Use "portable" for TFLite and
    ONNX files.

    Examples:
        >>> layer = LambdaLayer(scope=23)
        >>> with planning_for("tpu"):
        ...     layer.build((None, 28, 28, 256))
        >>> layer.plan.algorithm  # a CPU would take "fourier"
        'query_first'
    """
    one_of("device", device, DEVICES)
    if not hasattr(_targets, "stack"):
        _targets.stack = []
    targets, graph = _targets.stack, _outermost_graph()
    before = _targets_of_graph.get(graph)
    _targets_of_graph[graph] = targets
    targets.append(device)
    try:
        yield
    finally:
        targets.pop()
        if before is None:
            del _targets_of_graph[graph]
        else:
            _targets_of_graph[graph] = before


def _outermost_graph():
    """Returns the default graph around all functions that are being traced."""
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return graph


def accumulation_dtype(dtype):
    """Returns the dtype of sums over positions: float32, or float64."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def factor_dtype(dtype, narrow=(tf.bfloat16, tf.float16)):
    """Returns the dtype of the factors of sums over positions.

    A half precision stays as it is if `narrow` permits it and the device's
    matrix units sum it in float32. `narrow` matters because a sum over all
    positions can overflow float16, and the weight of one position underflow.
    """
    known = {"tpu": (tf.bfloat16,), "gpu": (tf.bfloat16, tf.float16)}
    if dtype in narrow and dtype in known.get(target_device(), ()):
        return dtype
    return accumulation_dtype(dtype)
