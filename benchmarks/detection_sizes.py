"""Builds every experiment of the garden at full size, and counts.

    TF_USE_LEGACY_KERAS=1 python -m benchmarks.detection_sizes --write docs

Nothing is trained. Writes the tables `backbones` and `experiments` of
`detection.md`.
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from official.core import exp_factory
from official.core import task_factory
from official.vision import registry_imports  # noqa: F401

from benchmarks import report
from lambdanet_tf import analysis
from lambdanet_tf import garden
from lambdanet_tf import models
from lambdanet_tf.garden.experiments import EXPERIMENTS

DOCUMENT = "detection.md"
SIZE = 1024
DEPTHS = (101, 152, 200)
LEVELS = ("c2", "c3", "c4", "c5")
# Box and mask AP of Table 14; it has no row of depth 200.
TABLE_14 = {
    "ResNet-101": ("48.2", "42.6"),
    "ResNet-101 + SE": ("48.5", "42.8"),
    "LambdaResNet-101": ("49.4", "43.5"),
    "ResNet-152": ("48.9", "43.2"),
    "ResNet-152 + SE": ("49.4", "43.5"),
    "LambdaResNet-152": ("50.0", "43.9"),
}


def backbones():
    """Names of Table 14's backbones, and how `build` makes them."""
    found = {}
    for depth in DEPTHS:
        rows = {
            f"ResNet-{depth}": (f"ResNetRS{depth}", {"se_ratio": 0.0}),
            f"ResNet-{depth} + SE": (f"ResNetRS{depth}", {}),
            f"LambdaResNet-{depth}": (f"LambdaResNet{depth}", {}),
        }
        found |= rows
    return found


def backbone_table():
    """Parameters and operations of the backbones for one image."""
    lines = [
        f"| backbone | parameters, M | GFLOPs at {SIZE} px | the paper's AP, "
        "boxes / masks |",
        "|---|---|---|---|",
    ]
    for title, (name, changes) in backbones().items():
        model = models.build(
            name, endpoints=LEVELS, input_shape=(SIZE, SIZE, 3), **changes
        )
        counts = analysis.analyze(model, executed=False)
        published = " / ".join(TABLE_14.get(title, ()))
        lines.append(
            f"| {title} | {counts.total('parameters') / 1e6:.3f} "
            f"| {counts.total('flops') / 1e9:.1f} | {published} |"
        )
        tf.keras.backend.clear_session()
    return "\n".join(lines)


def experiment_table():
    """Parameters of every experiment's model, as its task builds it."""
    lines = ["| experiment | px | parameters, M |", "|---|---|---|"]
    for name in EXPERIMENTS:
        params = exp_factory.get_exp_config(name)
        params.validate()
        model = task_factory.get_task(params.task).build_model()
        number = sum(tf.size(w).numpy() for w in model.trainable_weights)
        size = params.task.model.input_size[0]
        lines.append(f"| `{name}` | {size} | {number / 1e6:.3f} |")
        print(lines[-1], flush=True)
        tf.keras.backend.clear_session()
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", required=True, help="folder of the docs")
    folder = pathlib.Path(parser.parse_args().write)
    garden.register()
    for section, table in (
        ("backbones", backbone_table),
        ("experiments", experiment_table),
    ):
        text = table()
        print(text, flush=True)
        report.insert(folder, section, text, DOCUMENT)


if __name__ == "__main__":
    main()
