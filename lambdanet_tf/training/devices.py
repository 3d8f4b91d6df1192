"""Devices: the strategy of a run, and losing one of them."""

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
# A worker that waits for one that is gone gets one of these, too.
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
    if (workers := number_of_workers()) > 1:
        if not options.run_dir:
            raise UserError("Several workers need one folder: --run-dir.")
        chief = "which is this one" if is_chief() else "which is another one"
        print_fn(f"Waiting for {workers} workers. The chief prints, {chief}.")
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


def any_process(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Returns whether a flag is set in any process of a run; waits for all."""
    if number_of_workers() < 2:
        return flag
    make = strategy.experimental_distribute_values_from_function
    flags = make(lambda context: tf.constant(float(flag)))
    return float(strategy.reduce("sum", flags, axis=None)) > 0.0


@contextlib.contextmanager
def lost_device_stops() -> Iterator[None]:
    """Raises `Stopped` if TensorFlow loses a TPU, a machine or its files.

    Its error is the one that is raised, or the cause of a `UserError`.
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
        _, _, text = line.rpartition("}} ")  # TensorFlow's name of a function.
        raise Stopped(
            f"a machine or a device was lost: {text}\n"
            "The same command resumes the run, if it names --run-dir."
        ) from error
