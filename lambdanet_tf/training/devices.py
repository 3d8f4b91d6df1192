"""Devices: the strategy of a run, and what happens if one is lost."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.training.options import ON_TF_KERAS
from lambdanet_tf.training.options import PrintFn
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import Stopped
from lambdanet_tf.training.options import number_of_workers
from lambdanet_tf.training.options import strategy_kind

_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError)
# A worker that waits for a lost one may also get one of these.
_LOST_WORKER = (
    *_LOST,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


def create_strategy(
    options: RunOptions, print_fn: PrintFn = print
) -> tf.distribute.Strategy:
    """Creates the distribution strategy of a run.

    Call it before any other computation, because TensorFlow connects to a
    cluster only at the start of a process.
    """
    kind = strategy_kind(options)
    if kind == "auto":
        several = len(tf.config.list_physical_devices("GPU")) > 1
        kind = "mirrored" if several else "default"
    if kind in ON_TF_KERAS and KERAS_3:
        raise UserError(
            f"The strategy {kind} needs tf_keras: set the environment variable "
            "TF_USE_LEGACY_KERAS=1 before you import TensorFlow."
        )
    if options.jit_compile and kind != "default":
        raise UserError(
            "`jit_compile` works on one device only. (On a TPU, TensorFlow "
            f"always compiles.) Received: the strategy {kind}."
        )
    if (workers := number_of_workers()) > 1:
        if not options.run_dir:
            raise UserError("Several workers need a common --run-dir.")
        chief = "This worker" if is_chief() else "Another worker, the chief,"
        print_fn(f"Waiting for {workers} workers. {chief} prints the progress.")
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
            f"Cannot use the TPU {name!r}: {error} For a TPU, install "
            "tensorflow-tpu instead of tensorflow; see docs/training.md."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def is_chief() -> bool:
    """Returns whether this process writes the run folder (by TF_CONFIG)."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    jobs = resolver.cluster_spec().as_dict()
    chief = "chief" if "chief" in jobs else "worker"
    own = resolver.task_type, resolver.task_id
    return number_of_workers() < 2 or own == (chief, 0)


def any_process(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Returns whether any process of a run sets a flag; waits for all."""
    if number_of_workers() < 2:
        return flag
    make = strategy.experimental_distribute_values_from_function
    flags = make(lambda context: tf.constant(float(flag)))
    return float(strategy.reduce("sum", flags, axis=None)) > 0.0


@contextlib.contextmanager
def lost_device_stops() -> Iterator[None]:
    """Raises `Stopped` if TensorFlow loses a TPU, a machine or its files.

    TensorFlow's error may also be the cause of a `UserError`.
    """
    lost = _LOST if number_of_workers() < 2 else _LOST_WORKER
    try:
        yield
    except (tf.errors.OpError, UserError) as error:
        is_told = isinstance(error, UserError)
        cause: Any = error.__cause__ if is_told else error
        if not isinstance(cause, lost):
            raise
        line = f"{cause.message}".strip().partition("\n")[0]
        _, _, text = line.rpartition("}} ")  # Drops the name of a function.
        raise Stopped(
            f"a machine or device was lost: {text}\n"
            "To resume the run, repeat the command with its --run-dir."
        ) from error
