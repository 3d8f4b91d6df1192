"""Devices: what each is good at, and which one plans are made for."""

import contextlib
import dataclasses
import threading
import weakref

import tensorflow as tf

from lambdanet_tf.arguments import one_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """What a device is good at, in float32.

    Attributes:
        name: key of `DEVICES`, also of a row whose rates were changed.
        flops: operations per second of a large matrix product.
        inner: inner length at which a product runs at half that rate.
        bandwidth: bytes per second of reading and writing intermediates.
        gathering: the same of the table of all pairs of a block.
        convolution: rate of a convolution, as a share of `flops`; above 1
            where the products with padding, which count here, are skipped.
        convolution_training: the same with its gradients.
        convolution_inner: products of an output number at which a convolution
            runs at half of these rates.
        launch: seconds that a small operation takes, whatever its size.
        training: how much longer moving takes with the gradients.
        fourier: operations per second of fast Fourier transforms; 0 where
            there are none.
        memory: bytes that a position part should stay below; beyond, a
            plan that needs less is taken, if it is not much slower.
        lanes: the last axis of an intermediate is stored in multiples of this
            many numbers.
    """

    name: str
    flops: float
    inner: float
    bandwidth: float
    gathering: float
    convolution: float
    convolution_training: float
    convolution_inner: float
    launch: float
    training: float
    fourier: float
    memory: float
    lanes: int = 1


# Fitted to layers drawn at random (`benchmarks.layers.regret`).
_CPU = Device(
    name="cpu",
    flops=1.4e11,
    inner=4.1,
    bandwidth=1e10,
    gathering=8.7e9,
    convolution=1.25,
    convolution_training=0.22,
    convolution_inner=52,
    launch=1.1e-5,
    training=2.6,
    fourier=1.4e10,
    memory=2**32,
)
# From the vendors' figures of an H200, not measured here.
_GPU = Device(
    name="gpu",
    flops=4e13,
    inner=64,
    bandwidth=4e12,
    gathering=4e12,
    convolution=0.3,
    convolution_training=0.3,
    convolution_inner=0,
    launch=8e-6,
    training=3.0,
    fourier=1e12,
    memory=2**34,
)
# Fitted to what the compiler of v3 expects of layers drawn at random, in
# bfloat16 (`benchmarks.tpu.choices`); never measured.
_TPU = Device(
    name="tpu",
    flops=3e13,
    inner=64,
    bandwidth=4.5e11,
    gathering=2.8e12,
    convolution=0.3,
    convolution_training=0.3,
    convolution_inner=0,
    launch=4e-6,
    training=2.0,
    fourier=1e11,
    memory=2**34,
    lanes=128,
)
# Files of TFLite and ONNX, which have no fast Fourier transforms.
_PORTABLE = dataclasses.replace(_CPU, name="portable", fourier=0.0)
DEVICES = {device.name: device for device in (_CPU, _GPU, _TPU, _PORTABLE)}

# What `planning_for` says in a thread, innermost last; also by the graph that
# is outermost there.
_targets = threading.local()
_targets_of_graph = weakref.WeakKeyDictionary()


def target_device():
    """Returns the key of `DEVICES` that plans are made for.

    What `planning_for` says in this thread or, in a replica of a strategy, in
    the one that runs it; or else the best device of this process.
    """
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

    Holds in the thread that enters it, for what it traces, and for the
    replicas of the strategies that it runs; other threads do not see it.

    "portable" is for files of TFLite and ONNX. What traces a model inside
    makes a graph of operations that both have:

        with ops.planning_for("portable"):
            content = tf.lite.TFLiteConverter.from_keras_model(model).convert()

    Args:
        device: key of `DEVICES`.

    Yields:
        None; plans made inside are for the device.

    Raises:
        ValueError: if it is not one.

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
    """Returns the default graph around all functions that are being traced.

    Every thread has its own where nothing is traced, also eagerly.
    """
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return graph
