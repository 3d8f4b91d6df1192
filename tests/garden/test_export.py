"""An exported detector finds, elsewhere, what the trained one finds."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.serving import standalone
from tests.support import serve_check

pytest.importorskip("lambdanet_tf.garden", exc_type=ImportError)
task_factory = pytest.importorskip("official.core.task_factory")
hyperparams = pytest.importorskip("official.modeling.hyperparams")
detection_tfrecords = pytest.importorskip(
    "benchmarks.studies.detection_tfrecords"
)
garden_tasks = pytest.importorskip("tests.support.garden_tasks")

pytestmark = [
    pytest.mark.garden,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # The Model Garden's own.
]

OUTPUTS = ("detection_boxes", "detection_scores", "detection_masks")


@pytest.fixture(scope="module")
def detector(tmp_path_factory):
    """An export, an image as it takes it, and what the model finds in it."""
    folder = tmp_path_factory.mktemp("detector")
    records = folder / "scenes.tfrecord"
    garden_tasks.write_scenes(records, np.random.default_rng(0))
    params = garden_tasks.detector(records)
    params.task.validation_data.global_batch_size = 1
    hyperparams.save_params_dict_to_yaml(params, str(folder / "tiny.yaml"))
    run, export = folder / "run", folder / "export"
    command(
        *("train", f"--config_file={folder / 'tiny.yaml'}"),
        *("--mode=train", f"--model_dir={run}"),
    )
    command(
        *("export", f"--config_file={run / 'params.yaml'}"),
        *(f"--checkpoint_path={run}", f"--export_dir={export}"),
        *("--batch_size=1", "--input_type=image_tensor"),
        f"--input_image_size={garden_tasks.SIZE},{garden_tasks.SIZE}",
    )
    task = task_factory.get_task(params.task, logging_dir=str(folder))
    model = task.build_model()
    checkpoint = tf.train.latest_checkpoint(str(run))
    status = tf.train.Checkpoint(model=model).read(checkpoint)
    status.expect_partial().assert_existing_objects_matched()
    # The evaluation's own batch, and the same image out of its file.
    ((images, labels),) = task.build_inputs(params.task.validation_data).take(1)
    found = model(
        images,
        image_shape=labels["image_info"][:, 1],
        anchor_boxes=labels["anchor_boxes"],
        training=False,
    )
    image = detection_tfrecords.read_scenes(str(records), 1)[0].image[None]
    return export / "saved_model", image, found


def command(name, *flags):
    """Runs a command of the package."""
    module = f"lambdanet_tf.garden.{name}"
    experiment = "--experiment=lambda_resnet_maskrcnn_coco"
    subprocess.run(
        [sys.executable, "-m", module, experiment, *flags],
        check=True,
        capture_output=True,
    )


def same(outputs, wanted, count):
    np.testing.assert_allclose(
        outputs[:count], wanted[:count], rtol=1e-4, atol=1e-4
    )


def test_an_export_needs_tensorflow_alone(detector):
    folder, image, wanted = detector
    call = "serving_default", {"inputs": image}, False
    (found,) = standalone.run_standalone(folder, [call])
    (count,) = wanted["num_detections"].numpy()
    assert found["num_detections"] == count > 0
    for name in (*OUTPUTS, "detection_classes"):
        same(found[name][0], wanted[name][0], count)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_an_export_runs_in_cc(detector, pytestconfig, tmp_path):
    folder, image, wanted = detector
    program = serve_check.build(pytestconfig.cache.mkdir("serve_check"))
    (count,) = wanted["num_detections"].numpy()
    for name in OUTPUTS:
        found = serve_check.run(
            program, folder, image, tmp_path, "serving_default", "inputs", name
        )
        same(found.reshape(wanted[name].shape)[0], wanted[name][0], count)
