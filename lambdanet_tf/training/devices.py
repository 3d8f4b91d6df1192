"""Devices: the strategy of a run, signals that stop it, and losing one."""

import contextlib
import functools
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.training.options import ON_TF_KERAS
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import Stopped
from lambdanet_tf.training.options import number_of_workers
from lambdanet_tf.training.options import strategy_kind

_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError)
# A worker that waits for one that is gone gets one of these, too.
_LOST_WORKER = (
    *_LOST,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
)


def create_strategy(options: RunOptions) -> tf.distribute.Strategy:
    """Creates the distribution strategy of a run.

    Call it before anything else is computed: TensorFlow connects to a cluster
    only at the start of a process.
    """
    kind = strategy_kind(options)
    if kind == "auto":
        several = len(tf.config.list_physical_devices("GPU")) > 1
        kind = "mirrored" if several else "default"
    if kind in ON_TF_KERAS and KERAS_3:
        raise UserError(
            f"The strategy {kind} trains on tf_keras: set the environment "
            "variable TF_USE_LEGACY_KERAS=1 before TensorFlow is imported."
        )
    if options.jit_compile and kind != "default":
        raise UserError(
            "`jit_compile` is for one device. On a TPU everything is compiled "
            f"without it. Received: strategy {kind}."
        )
    if number_of_workers() > 1 and not options.run_dir:
        raise UserError(
            "Several processes need one folder that all can read: --run-dir."
        )
    if kind == "tpu":
        return _tpu_strategy(options.tpu or "local")
    if kind == "multiworker":
        return tf.distribute.MultiWorkerMirroredStrategy()
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def _tpu_strategy(name):
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError, RuntimeError) as error:
        raise UserError(
            f"Cannot use the TPU {name!r}: {error} A TPU needs the package "
            "tensorflow-tpu in the place of tensorflow; see docs/training.md."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def is_chief() -> bool:
    """Returns whether this process writes the run folder, by TF_CONFIG."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    jobs = resolver.cluster_spec().as_dict()
    chief = "chief" if "chief" in jobs else "worker"
    own = resolver.task_type, resolver.task_id
    return number_of_workers() < 2 or own == (chief, 0)


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns the devices in words."""
    number = strategy.num_replicas_in_sync
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return f"{number} TPU cores"
    device = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    if number == 1:
        return f"1 {device}"
    workers = number_of_workers()
    where = f" on {workers} machines" if workers > 1 else ""
    return f"{number} {device} replicas{where}"


def any_process(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Returns whether a flag is set in any process of a run; waits for all."""
    if number_of_workers() < 2:
        return flag
    return float(_total(strategy)(tf.constant(float(flag)))) > 0.0


@functools.cache
def _total(strategy):
    """Returns a function that adds up the values of all replicas."""

    @tf.function
    def total(value):
        values = strategy.run(lambda: tf.identity(value))
        return strategy.reduce("sum", values, axis=None)

    return total


def local_rows(strategy: tf.distribute.Strategy, value: Any) -> np.ndarray:
    """Returns the rows of all replicas of this process, in their order."""
    parts = strategy.experimental_local_results(value)
    return np.concatenate([part.numpy() for part in parts])


@contextlib.contextmanager
def lost_device_stops() -> Iterator[None]:
    """Raises `Stopped` if TensorFlow loses a TPU or another worker.

    This process cannot go on then, but a new one can.
    """
    lost = _LOST if number_of_workers() < 2 else _LOST_WORKER
    try:
        yield
    except lost as error:
        lines = [line for line in error.message.split("\n") if line.strip()]
        raise Stopped(
            f"a machine or a device was lost: {[*lines, ''][0]}\n"
            "The same command resumes the run, if it names --run-dir."
        ) from error


class StopRequest:
    """Notes the signals that ask this process to stop: SIGTERM and SIGINT.

    The run then ends its step or its batch, saves and exits; a second signal
    ends the process at once. Use it as a context manager in the main thread;
    elsewhere it notes nothing.

    Attributes:
        received: name of the signal, or None.
        at_once: whether a signal raises `Stopped` wherever the process is; from
            the beginning, until there is something to save.
    """

    def __init__(self):
        self.received: str | None = None
        self.at_once = True
        self._former = {}

    def __enter__(self) -> "StopRequest":
        with contextlib.suppress(ValueError):  # Not in the main thread.
            for number in (signal.SIGTERM, signal.SIGINT):
                self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: Any) -> None:
        while self._former:
            signal.signal(*self._former.popitem())

    def listen_again(self) -> None:
        """Takes the signals back from a strategy of several workers.

        It notes SIGTERM by itself, in C++.
        """
        for number in self._former:
            signal.signal(number, self._note)

    def check(self) -> None:
        """Raises `Stopped` if a signal has come.

        Several processes stop together instead, at the next checkpoint.
        """
        if self.received and (self.at_once or number_of_workers() < 2):
            raise Stopped("Stopped by a signal")

    def _note(self, number, frame):
        self.received = signal.Signals(number).name
        self.__exit__()
        if self.at_once:
            self.check()
