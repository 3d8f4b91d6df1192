"""Devices: what each is good at, which one plans are made for, and precision.

Sums over positions run in float32 or wider. Matrix units add up numbers of half
precision in float32; so does `tf.matmul` on a CPU. TensorFlow's other
operations there add up in the dtype that they are given: in bfloat16 a sum of
ones ends at 256, or not far above.
"""

import contextlib
import dataclasses
import threading
import weakref

import tensorflow as tf

from lambdanet_tf.arguments import one_of


@dataclasses.dataclass(frozen=True)
class Rates:
    """What a device reaches in float32.

    Attributes:
        flops: operations per second of a large matrix product.
        inner: inner length at which a product runs at half that rate.
        bandwidth: bytes per second of reading and writing intermediates.
        launch: seconds that a small operation takes, whatever its size.
        training: how much longer moving takes with the gradients.
        convolution: rate of a convolution, as a share of `flops`; above 1
            where the products with padding, which count here, are skipped.
        convolution_training: the same with its gradients.
        convolution_inner: products of an output number at which a convolution
            runs at half of these rates.
        fourier: operations per second of fast Fourier transforms; 0 where
            there are none.
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


# That of CPUs was fitted to layers drawn at random, with their measured times
# (`benchmarks.layers.regret`), that of TPUs to what the compiler of v3 expects
# in bfloat16; that of GPUs is the vendor's, of an H200. "portable" is for files
# of TFLite and ONNX, which have no fast Fourier transforms. A new row may also
# need a place in `target_device`, its half precisions in `factor_dtype`, and
# its name in `devices=` of "fourier" and "fft" (position/plan.py).
DEVICES = {
    "cpu": Rates(1.4e11, 4.1, 1e10, 1.1e-5, 2.6, 1.25, 0.22, 52, 1.4e10),
    "gpu": Rates(4e13, 64, 4e12, 8e-6, 3.0, 0.3, 0.3, 0, 1e12),
    "tpu": Rates(1e13, 16, 4.5e11, 4e-6, 1.0, 0.3, 0.3, 0, 1e11),
    "portable": Rates(1.4e11, 4.1, 1e10, 1.1e-5, 2.6, 1.25, 0.22, 52, 0),
}

# The devices of `planning_for` in a thread, innermost last; also by the graph
# that is outermost there.
_targets = threading.local()
_targets_of_graph = weakref.WeakKeyDictionary()


def target_device():
    """Returns the key of `DEVICES` that plans are made for."""
    targets = getattr(_targets, "stack", None)
    if not targets:
        # A replica has a thread of its own, but the graph of its strategy's.
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

    Holds in the thread that enters it, for what it traces, and for the replicas
    of the strategies that it runs. "portable" is for files of TFLite and ONNX.

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
    """Returns in what sums over positions are kept: float32, or float64."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def factor_dtype(dtype, narrow=(tf.bfloat16, tf.float16)):
    """Returns to what factors of sums over positions are cast.

    That is a half precision itself on devices whose matrix units know it and
    add up in float32, if it is among `narrow`: one sum over all positions can
    be larger than any float16, and the share of one among thousands smaller.
    """
    known = {"tpu": (tf.bfloat16,), "gpu": (tf.bfloat16, tf.float16)}
    if dtype in narrow and dtype in known.get(target_device(), ()):
        return dtype
    return accumulation_dtype(dtype)
