"""Trains a lambda network: `python train.py --help`."""

import argparse
import json
import os
import sys


def choose_keras(arguments):
    """Chooses tf_keras where Keras 3 fails: on TPUs and several machines.

    It must be chosen before TensorFlow is imported, hence here.

    Args:
        arguments: list of str. The command line.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--tpu", default="")
    flags, _ = parser.parse_known_args(arguments)
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    workers = len(cluster.get("worker", [])) + len(cluster.get("chief", []))
    if flags.strategy in ("tpu", "multiworker"):
        reason = f"--strategy {flags.strategy}"
    elif flags.strategy == "auto" and flags.tpu:
        reason = f"--tpu {flags.tpu}"
    elif flags.strategy == "auto" and workers > 1:
        reason = "TF_CONFIG names several workers"
    else:
        return
    if os.environ.get("TF_USE_LEGACY_KERAS") not in ("1", "true", "True"):
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        print(f"train.py: {reason}: training on tf_keras, not Keras 3.")


if __name__ == "__main__":
    # TensorFlow's C++ reports, among others, an error for a missing GPU.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    choose_keras(sys.argv[1:])
    from lambdanet_tf.training.command_line import main  # noqa: PLC0415

    sys.exit(main())
