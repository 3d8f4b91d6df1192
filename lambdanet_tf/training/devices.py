"""Devices: the strategy of a run, signals that stop it, and losing one."""

import contextlib
import copy
import functools
import os
import random
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # of seeds
from tensorflow.python.framework import config  # of determinism

from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import Stopped
from lambdanet_tf.training.options import number_of_workers

_NVIDIA_DEVICE = "/dev/nvidia0"  # What the driver makes for the first GPU.
# What errors of several kinds say where a worker ended, or was started again.
_LOST_WORKER = ("Collective ops is aborted", "current incarnation")


def create_strategy(options: RunOptions) -> tf.distribute.Strategy:
    """Creates the distribution strategy of a run.

    Call it before anything else is computed: clusters and parts of a CPU can
    only be set up at the start of a process.

    Args:
        options: which strategy, on what.

    Raises:
        ValueError: if the strategy does not fit the machine, the Keras or the
            other options.
    """
    if options.deterministic:
        tf.config.experimental.enable_op_determinism()
    kind = strategy_kind(options)
    _check_keras(kind)
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
        return _tpu_strategy(options.tpu)
    if kind == "multiworker":
        return tf.distribute.MultiWorkerMirroredStrategy()
    if kind == "mirrored":
        return _mirrored_strategy(options.replicas)
    return tf.distribute.get_strategy()


def strategy_kind(options: RunOptions) -> str:
    """Returns what `auto` means here: one of the other `STRATEGIES`."""
    if options.strategy != "auto":
        return options.strategy
    if options.tpu:
        return "tpu"
    if number_of_workers() > 1:
        return "multiworker"
    gpus = tf.config.list_physical_devices("GPU")
    return "mirrored" if options.replicas > 1 or len(gpus) > 1 else "default"


def number_of_hosts(strategy: tf.distribute.Strategy) -> int:
    """Returns how many machines read images and feed the devices."""
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return strategy.extended.num_hosts
    return max(number_of_workers(), 1)


def is_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a run computes on CPUs."""
    on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    return not on_tpu and not tf.config.list_physical_devices("GPU")


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns the devices in words."""
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return f"{strategy.num_replicas_in_sync} TPU cores"
    device = "CPU" if is_cpu(strategy) else "GPU"
    number = strategy.num_replicas_in_sync
    if number == 1:
        return f"1 {device}{_unused_gpu()}"
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
    """A function that adds up the values of all replicas, traced once."""

    @tf.function
    def total(value):
        values = strategy.run(lambda: tf.identity(value))
        return strategy.reduce("sum", values, axis=None)

    return total


def local_rows(strategy: tf.distribute.Strategy, value: Any) -> np.ndarray:
    """Returns the rows of all replicas of this process, in their order."""
    parts = strategy.experimental_local_results(value)
    return np.concatenate([part.numpy() for part in parts])


def is_lost(error: tf.errors.OpError) -> bool:
    """Returns whether an error says that a TPU or another worker is gone.

    Then this process cannot go on, but a new one can. A worker that waits for
    one that is gone gets another error than the one that writes to it.
    """
    if isinstance(error, (tf.errors.AbortedError, tf.errors.UnavailableError)):
        return True
    if number_of_workers() < 2:
        return False
    waited = (tf.errors.CancelledError, tf.errors.DeadlineExceededError)
    return isinstance(error, waited) or any(
        text in error.message for text in _LOST_WORKER
    )


@contextlib.contextmanager
def lost_device_stops(folder: str) -> Iterator[None]:
    """Raises `Stopped` where TensorFlow says that a device was lost.

    Args:
        folder: of the run, for the message.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if not is_lost(error):
            raise
        lines = [line for line in error.message.split("\n") if line.strip()]
        # In a compiled function "Graph execution error:" comes before it.
        causes = [line for line in lines if "Collective ops is" in line]
        raise Stopped(
            f"a machine or a device was lost: {[*causes, *lines, ''][0]}\n"
            f"The same command resumes {folder}."
        ) from error


class StopRequest:
    """Notes the signals that ask this process to stop.

    A preempted machine sends SIGTERM; Ctrl-C sends SIGINT. The run then ends
    its step or its batch, saves and exits; a second signal ends the process at
    once.

    Use it as a context manager in the main thread; elsewhere it notes nothing.

    Attributes:
        received: name of the signal, or None.
        at_once: whether it raises `Stopped` wherever the process is; from the
            beginning, until there is something to save.
    """

    def __init__(self):
        self.received: str | None = None
        self.at_once = True
        self._former = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._former[number] = signal.signal(number, self._note)
            except ValueError:  # Not in the main thread.
                break
        return self

    def __exit__(self, *error: Any) -> None:
        self._restore()

    def listen_again(self) -> None:
        """Takes the signals back from TensorFlow.

        A strategy of several workers notes SIGTERM by itself, in C++.
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
        self._restore()
        if self.at_once:
            self.check()

    def _restore(self):
        while self._former:
            signal.signal(*self._former.popitem())


@contextlib.contextmanager
def callers_state_restored() -> Iterator[None]:
    """Leaves random numbers, dtype policy and determinism as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    seed, seeds = context.global_seed(), _seeds()
    policy = tf.keras.mixed_precision.global_policy()
    deterministic = config.is_op_determinism_enabled()
    try:
        yield
    finally:
        tf.random.set_seed(seed)
        for place, name, value in seeds:
            setattr(place, name, value)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        tf.keras.mixed_precision.set_global_policy(policy)
        if not deterministic:
            config.disable_op_determinism()


def _seeds():
    """What TensorFlow and Keras draw seeds from: places, names and copies.

    `set_random_seed` sets them; nothing public reads them.
    """
    root = tf.keras.layers.Layer.__module__.split(".")[0]  # keras or tf_keras
    if KERAS_3:
        state = sys.modules[f"{root}.src.backend.common.global_state"]
        keras = state.GLOBAL_STATE_TRACKER
        names = ("global_random_seed", "global_seed_generator")
    else:
        keras = sys.modules[f"{root}.src.backend"]._SEED_GENERATOR
        names = ("generator",)
    found = [(context.context(), "_rng"), *((keras, name) for name in names)]
    seeds = [(place, name, getattr(place, name, None)) for place, name in found]
    return [
        (*where, copy.copy(seed) if isinstance(seed, random.Random) else seed)
        for *where, seed in seeds
    ]


def _unused_gpu():
    """What to say where the machine has a GPU that TensorFlow cannot use."""
    unused = os.path.exists(_NVIDIA_DEVICE)
    if not unused or tf.config.list_physical_devices("GPU"):
        return ""
    return (
        " (TensorFlow cannot use the GPU of this machine; with the environment "
        "variable TF_CPP_MIN_LOG_LEVEL=0 it says why)"
    )


def _check_keras(kind):
    if kind in ("multiworker", "tpu") and KERAS_3:
        raise UserError(
            f"The strategy {kind} trains on tf_keras; Keras 3 fails there. Set "
            "the environment variable TF_USE_LEGACY_KERAS=1 before TensorFlow "
            "is imported (train.py does that by itself)."
        )


def _mirrored_strategy(replicas):
    gpus = tf.config.list_logical_devices("GPU") if not replicas else []
    if gpus:
        return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])
    if replicas:
        _divide_cpu(replicas)
    cpus = tf.config.list_logical_devices("CPU")
    if len(cpus) < 2:
        raise UserError(
            "`strategy` mirrored needs several devices. Received: one CPU"
            f"{_unused_gpu()}. Give --replicas 2 to try it on parts of the CPU."
        )
    names = [cpu.name for cpu in cpus[: replicas or None]]
    # The default collectives have been seen to fail between CPUs when a
    # process makes several strategies.
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(names, cross_device_ops=reduction)


def _divide_cpu(replicas):
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * replicas
    try:
        tf.config.set_logical_device_configuration(cpu, parts)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < replicas:
            raise UserError(
                "`replicas` must be chosen before TensorFlow has computed "
                f"anything. Received: {replicas}."
            ) from error


def _tpu_strategy(name):
    name = name or "local"
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
