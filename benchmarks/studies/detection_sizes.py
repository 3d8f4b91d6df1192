"""Builds every experiment of the garden at full size, and counts.

    TF_USE_LEGACY_KERAS=1 python -m benchmarks.studies.detection_sizes

Nothing is trained.
"""

import tensorflow as tf
from official.core import exp_factory
from official.core import task_factory
from official.vision import registry_imports  # noqa: F401

from benchmarks import records
from lambdanet_tf import analysis
from lambdanet_tf import garden
from lambdanet_tf import models
from lambdanet_tf.garden.experiments import EXPERIMENTS

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
        found |= {
            f"ResNet-{depth}": (f"ResNetRS{depth}", {"se_ratio": 0.0}),
            f"ResNet-{depth} + SE": (f"ResNetRS{depth}", {}),
            f"LambdaResNet-{depth}": (f"LambdaResNet{depth}", {}),
        }
    return found


def backbone(name, changes):
    model = models.build(
        name, endpoints=LEVELS, input_shape=(SIZE, SIZE, 3), **changes
    )
    counts = analysis.analyze(model, executed=False)
    tf.keras.backend.clear_session()
    return {x: counts.total(x) for x in ("parameters", "flops")}


def experiment(name):
    params = exp_factory.get_exp_config(name)
    params.validate()
    model = task_factory.get_task(params.task).build_model()
    number = analysis.trainable_parameters(model)
    tf.keras.backend.clear_session()
    return {"px": params.task.model.input_size[0], "parameters": number}


def main(arguments=None):
    recorder, _ = records.start("detection_sizes", __doc__, arguments)
    garden.register()
    known = backbones()

    def size(case):
        title = case["backbone"]
        published = " / ".join(TABLE_14.get(title, ()))
        facts = {"px": SIZE, "published": published}
        return backbone(*known[title]) | facts

    recorder.fill(records.cases(backbone=known), size)
    recorder.fill(
        records.cases(experiment=EXPERIMENTS),
        lambda case: experiment(case["experiment"]),
    )


if __name__ == "__main__":
    main()
