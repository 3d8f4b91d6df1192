"""Trains Mask R-CNN on scenes: a lambda network, and its convolutional twin.

    TF_USE_LEGACY_KERAS=1 python -m benchmarks.studies.detection    two hours

The experiment is `lambda_resnet_maskrcnn_coco` with `detection.yaml`, the
protocol docs/detection.md. A run that was interrupted is continued.
"""

import functools
import pathlib
import time

import tensorflow as tf
from official.common import distribute_utils
from official.core import task_factory
from official.core import train_lib
from official.core import train_utils
from official.vision import registry_imports  # noqa: F401

from benchmarks import records
from benchmarks.studies import detection_scenes
from benchmarks.studies import runs
from lambdanet_tf import garden  # noqa: F401, registers experiments

EXPERIMENT = "lambda_resnet_maskrcnn_coco"
CONFIG_FILE = pathlib.Path(__file__).with_name("detection.yaml")
# The last width makes both cost the same.
NETWORKS = {
    "lambda": (["CC", "CC", "CL", "LL"], [16, 32, 64, 128]),
    "convolution": (["CC", "CC", "CC", "CC"], [16, 32, 64, 96]),
}
GRID = (4e-3, 1.2e-2, 4e-2, 1.2e-1, 4e-1, 1.2)
RATES = GRID[1:4]
SEARCH_SEED = 0  # no seed of a final run
STEPS = 300  # as in `detection.yaml`
PARTS = {"search": ("search", "validation"), "final": ("train", "heldout")}


def run(folder, case, scenes):
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    params = experiment(case, scenes)
    train_utils.serialize_config(params, str(folder))
    tf.keras.utils.set_random_seed(case["seed"])
    strategy = distribute_utils.get_distribution_strategy(
        params.runtime.distribution_strategy
    )
    with strategy.scope():
        task = task_factory.get_task(params.task, logging_dir=str(folder))
    start = time.monotonic()
    model, metrics = train_lib.run_experiment(
        distribution_strategy=strategy,
        task=task,
        mode="train_and_post_eval",
        params=params,
        model_dir=str(folder),
    )
    seconds = time.monotonic() - start
    tf.keras.backend.clear_session()
    return {
        "parameters": model.count_params(),
        "backbone_parameters": model.backbone.count_params(),
        "scenes": params.task.validation_data.num_examples,
        "seconds": seconds if is_new else None,
        "metrics": {name: float(value) for name, value in metrics.items()},
    }


def experiment(case, scenes):
    chosen = train_utils.ParseConfigOptions(
        experiment=EXPERIMENT,
        config_file=[str(CONFIG_FILE)],
        params_override="",
    )
    params = train_utils.parse_configuration(chosen, print_return=False)
    task = params.task
    network = task.model.backbone.lambda_resnet
    network.stages, network.widths = NETWORKS[case["network"]]
    learned, judged = PARTS[case["part"]]
    task.train_data.input_path = str(scenes / f"{learned}.tfrecord")
    task.train_data.seed = case["seed"]
    task.validation_data.input_path = str(scenes / f"{judged}.tfrecord")
    learning_rate = params.trainer.optimizer_config.learning_rate
    learning_rate.cosine.initial_learning_rate = case["rate"]
    params.validate()
    return params


@records.script("detection", seeds=3, runs="runs/detection")
def main(recorder, options):
    folder = pathlib.Path(options.runs)
    scenes = folder / "scenes" / "digits"
    detection_scenes.write_scenes(scenes)

    def measure(case):
        return run(folder / runs.slug(*case.values()), case, scenes)

    def score(network, part, seed, rate, _=None):
        case = {"pictures": "digits", "network": network, "part": part}
        case |= {"seed": seed, "rate": rate, "steps": STEPS}
        metrics = recorder.get(case, measure)["metrics"]
        return (metrics["AP"] + metrics["mask_AP"]) / 2

    chosen = {}
    for network in (x for x in NETWORKS if options.only in x):
        search = functools.partial(score, network, "search", SEARCH_SEED)
        chosen[network], _ = runs.search(GRID, RATES, search)
    for seed in range(1, options.seeds + 1):
        for network, rate in chosen.items():
            score(network, "final", seed, rate)
