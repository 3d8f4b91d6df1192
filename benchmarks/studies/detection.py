"""Trains Mask R-CNN on scenes: a lambda network, and its convolutional twin.

    export TF_USE_LEGACY_KERAS=1
    python -m benchmarks.studies.detection               hours
    python -m benchmarks.studies.detection --only lambda --seeds 1 --steps 5

The experiment is `lambda_resnet_maskrcnn_coco` with `detection.yaml`; the
scenes show scikit-learn's digits, or the clothes of a folder of Fashion-MNIST
(`--fashion FOLDER`). Each run has a folder of its own; one that was
interrupted is continued.
"""

import pathlib
import time

import tensorflow as tf
from official.common import distribute_utils
from official.core import task_factory
from official.core import train_lib
from official.core import train_utils
from official.vision import registry_imports  # noqa: F401
from official.vision.serving import export_saved_model_lib

from benchmarks import records
from benchmarks.studies import detection_scenes
from benchmarks.studies import detection_tfrecords
from lambdanet_tf import garden

EXPERIMENT = "lambda_resnet_maskrcnn_coco"
CONFIG_FILE = pathlib.Path(__file__).with_name("detection.yaml")
# They differ in the letters alone.
NETWORKS = {
    "lambda": ["CC", "CC", "CL", "LL"],
    "convolution": ["CC", "CC", "CC", "CC"],
}
SIZE = [detection_scenes.SIZE] * 2
STEPS = 800  # of the config


EXPORT = "export"


def run(folder, network, seed, scenes, steps=STEPS):
    """Trains, evaluates and exports one detector; returns what is recorded."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    params = experiment(network, seed, scenes, steps)
    train_utils.serialize_config(params, str(folder))
    tf.keras.utils.set_random_seed(seed)
    strategy = distribute_utils.get_distribution_strategy(
        params.runtime.distribution_strategy
    )
    with strategy.scope():
        task = task_factory.get_task(params.task, logging_dir=str(folder))
    start, start_cpu = time.monotonic(), time.process_time()
    model, metrics = train_lib.run_experiment(
        distribution_strategy=strategy,
        task=task,
        mode="train_and_post_eval",
        params=params,
        model_dir=str(folder),
    )
    export(params, folder)
    seconds = time.monotonic() - start
    cpu_seconds = time.process_time() - start_cpu
    tf.keras.backend.clear_session()
    return {
        "parameters": model.count_params(),
        "backbone_parameters": model.backbone.count_params(),
        "scenes": detection_scenes.PARTS["heldout"],
        "seconds": seconds if is_new else None,
        "cpu_seconds": cpu_seconds if is_new else None,
        "metrics": {name: float(value) for name, value in metrics.items()},
    }


def experiment(network, seed, scenes, steps=STEPS):
    """The config of a run."""
    garden.register()
    params = train_utils.parse_configuration(
        train_utils.ParseConfigOptions(
            experiment=EXPERIMENT,
            config_file=[str(CONFIG_FILE)],
            params_override="",
        ),
        print_return=False,
    )
    task = params.task
    task.model.backbone.lambda_resnet.stages = NETWORKS[network]
    task.train_data.input_path = str(scenes / "train.tfrecord")
    task.train_data.seed = seed
    task.validation_data.input_path = str(scenes / "heldout.tfrecord")
    decay = params.trainer.optimizer_config.learning_rate.cosine
    decay.decay_steps = max(1, steps - decay.offset)
    params.trainer.train_steps = steps
    params.validate()
    return params


def export(params, folder):
    """Exports what was trained, for one image at a time, with its masks."""
    export_saved_model_lib.export_inference_graph(
        input_type="image_tensor",
        batch_size=1,
        input_image_size=SIZE,
        params=params,
        checkpoint_path=tf.train.latest_checkpoint(str(folder)),
        export_dir=str(folder / EXPORT),
        export_checkpoint_subdir="checkpoint",
        export_saved_model_subdir="saved_model",
    )


def main(arguments=None):
    choices = {"fashion": None, "steps": STEPS, "runs": "runs/detection"}
    recorder, options = records.start(
        "detection", __doc__, arguments, seeds=3, **choices
    )
    folder = pathlib.Path(options.runs)
    images = f"idx:{options.fashion}" if options.fashion else "digits"
    pictures = "clothes" if options.fashion else "digits"
    scenes = folder / "scenes" / pictures
    detection_tfrecords.write_scenes(str(scenes), images)

    def measure(case):
        place = folder / "-".join(map(str, case.values()))
        fixed = scenes, options.steps
        return run(place, case["network"], case["seed"], *fixed)

    cases = [
        {"pictures": pictures, "network": network, "seed": seed}
        | {"steps": options.steps}
        for seed in range(options.seeds)
        for network in NETWORKS
    ]
    recorder.fill(cases, measure)


if __name__ == "__main__":
    main()
