"""Tasks of the Model Garden with lambda networks: training, weights, export."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf.serving import standalone
from tests.support import serve_check

garden = pytest.importorskip("lambdanet_tf.garden", exc_type=ImportError)
pytest.importorskip("official.vision.registry_imports")
task_factory = pytest.importorskip("official.core.task_factory")
train_lib = pytest.importorskip("official.core.train_lib")
hyperparams = pytest.importorskip("official.modeling.hyperparams")
segmentation = pytest.importorskip(
    "official.vision.tasks.semantic_segmentation"
)
tf_example_decoder = pytest.importorskip(
    "official.vision.dataloaders.tf_example_decoder"
)
garden_tasks = pytest.importorskip("tests.garden.garden_tasks")

pytestmark = [
    pytest.mark.garden,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # The Model Garden's own.
]


@pytest.fixture(scope="module")
def classified(tmp_path_factory):
    """The folder of a classification run, its params and its model."""
    folder = tmp_path_factory.mktemp("classified")
    records = folder / "images.tfrecord"
    garden_tasks.write_labelled(records, np.random.default_rng(1))
    params = garden_tasks.classifier(records)
    strategy = tf.distribute.OneDeviceStrategy("cpu:0")
    with strategy.scope():
        task = task_factory.get_task(params.task, logging_dir=str(folder))
    model, _ = train_lib.run_experiment(
        distribution_strategy=strategy,
        task=task,
        mode="train_and_eval",
        params=params,
        model_dir=str(folder),
    )
    return folder, params, model


def snapshot(model):
    return {k: w.numpy() for k, w in models.named_weights(model).items()}


def test_a_detector_learns_masks_and_is_evaluated(tmp_path):
    scenes = tmp_path / "scenes.tfrecord"
    garden_tasks.write_scenes(scenes, np.random.default_rng(0))
    params = garden_tasks.detector(scenes)
    params.task.losses.l2_weight_decay = 0.0  # Would move kernels as well.
    task = task_factory.get_task(params.task, logging_dir=str(tmp_path))
    model = task.build_model()
    optimizer = task.create_optimizer(params.trainer.optimizer_config)
    before = snapshot(model.backbone)
    batches = iter(task.build_inputs(params.task.train_data))
    for _ in range(3):  # The first moves the zero gammas alone.
        logs = task.train_step(next(batches), model, optimizer)
        assert np.isfinite(logs[task.loss])
    after = snapshot(model.backbone)
    still = [name for name in before if np.all(before[name] == after[name])]
    # The normalization after a lambda layer undoes a scale of the values.
    assert all(name.endswith("value_norm/gamma") for name in still)

    task.build_metrics(training=False)
    state = None
    for batch in task.build_inputs(params.task.validation_data).take(2):
        logs = task.validation_step(batch, model)
        state = task.aggregate_logs(state, logs)
    metrics = task.reduce_aggregated_logs(state)
    assert {"AP", "AP50", "mask_AP", "mask_AP50"} <= set(metrics)


def test_a_detector_begins_from_a_classifier(classified):
    folder, _, model = classified
    params = garden_tasks.detector("unread")
    params.task.init_checkpoint = str(folder)
    params.task.init_checkpoint_modules = "backbone"
    task = task_factory.get_task(params.task)
    found = task.build_model()
    task.initialize(found)
    wanted = snapshot(model.backbone)
    for name, weight in snapshot(found.backbone).items():
        # The run has swapped its averages in and out, by adding them.
        np.testing.assert_allclose(
            weight, wanted[name], rtol=1e-5, atol=1e-7, err_msg=name
        )


def test_weights_come_back_from_a_checkpoint(classified, tmp_path, rng):
    """As docs/detection.md shows it, to a classifier."""
    folder, params, trained = classified
    model = task_factory.get_task(params.task).build_model()
    checkpoint = tf.train.latest_checkpoint(str(folder))
    tf.train.Checkpoint(model=model).read(checkpoint).expect_partial()
    network = models.build(
        **garden_tasks.BACKBONE["lambda_resnet"],
        norm_epsilon=params.task.model.norm_activation.norm_epsilon,
        input_shape=(64, 64, 3),
        classes=3,
        include_preprocessing=False,
    )
    kernel, bias = model.layers[-1].weights
    weights = models.named_weights(model.backbone)
    weights |= {"predictions/kernel": kernel, "predictions/bias": bias}
    arrays = {name: weight.numpy() for name, weight in weights.items()}
    models.set_weights(network, arrays, checkpoint)
    models.save_weights(network, tmp_path / "weights.npz")
    models.load_weights(network, tmp_path / "weights.npz")
    images = rng.normal(size=(2, 64, 64, 3)).astype(np.float32)
    wanted = tf.nn.softmax(trained(images, training=False))
    np.testing.assert_allclose(
        network(images, training=False), wanted, rtol=1e-4, atol=1e-5
    )


def test_semantic_segmentation_needs_the_backbone_alone(rng):
    """The Model Garden's DeepLabV3+ learns with a lambda backbone."""
    config = segmentation.exp_cfg.SemanticSegmentationTask()
    config.model.backbone = garden.Backbone()
    decoder = {"level": 4, "num_filters": 8, "dilation_rates": [2]}
    head = {
        "level": 4, "num_convs": 1, "num_filters": 8, "low_level": 2,
        "feature_fusion": "deeplabv3plus", "low_level_num_filters": 8,
    }  # fmt: skip
    config.model.override(
        {
            "num_classes": 3,
            "input_size": [None, None, 3],
            "backbone": garden_tasks.BACKBONE,
            "head": head,
            "decoder": {"type": "aspp", "aspp": decoder},
            "norm_activation": {"use_sync_bn": False},
        }
    )
    task = segmentation.SemanticSegmentationTask(config)
    model = task.build_model()
    before = snapshot(model.backbone)
    optimizer = tf.keras.optimizers.legacy.Adam(0.01)
    masks = np.repeat(rng.integers(0, 3, (2, 1, 96, 1)), 64, axis=1)
    images = masks + 0.1 * rng.normal(size=(2, 64, 96, 3))
    labels = {
        "masks": tf.constant(masks, tf.float32),
        "valid_masks": tf.ones([2, 64, 96, 1], tf.bool),
        "image_info": tf.zeros([2, 4, 2]),
    }
    batch = tf.constant(images, tf.float32), labels
    losses = [
        float(task.train_step(batch, model, optimizer)[task.loss])
        for _ in range(5)
    ]
    assert losses[-1] < 0.97 * losses[0]
    after = snapshot(model.backbone)
    for name in ("stem_conv1/kernel", "stage4_block2_lambda/query/kernel"):
        assert np.any(before[name] != after[name])


def command(name, *flags):
    """Runs a command of the package."""
    module = f"lambdanet_tf.garden.{name}"
    experiment = "--experiment=lambda_resnet_maskrcnn_coco"
    subprocess.run(
        [sys.executable, "-m", module, experiment, *flags],
        check=True,
        capture_output=True,
    )


def test_an_exported_detector_finds_what_the_trained_one_finds(
    tmp_path, pytestconfig
):
    """With TensorFlow alone, and in C++."""
    records, run = tmp_path / "scenes.tfrecord", tmp_path / "run"
    garden_tasks.write_scenes(records, np.random.default_rng(0))
    params = garden_tasks.detector(records)
    params.task.validation_data.global_batch_size = 1
    hyperparams.save_params_dict_to_yaml(params, str(tmp_path / "tiny.yaml"))
    command(
        *("train", f"--config_file={tmp_path / 'tiny.yaml'}"),
        *("--mode=train", f"--model_dir={run}"),
    )
    command(
        *("export", f"--config_file={run / 'params.yaml'}"),
        *(f"--checkpoint_path={run}", f"--export_dir={tmp_path / 'export'}"),
        *("--batch_size=1", "--input_type=image_tensor"),
        f"--input_image_size={garden_tasks.SIZE},{garden_tasks.SIZE}",
    )
    task = task_factory.get_task(params.task, logging_dir=str(tmp_path))
    model = task.build_model()
    checkpoint = tf.train.latest_checkpoint(str(run))
    status = tf.train.Checkpoint(model=model).read(checkpoint)
    status.expect_partial().assert_existing_objects_matched()
    # The evaluation's own batch, and the same image out of its file.
    ((images, labels),) = task.build_inputs(params.task.validation_data).take(1)
    wanted = model(
        images,
        image_shape=labels["image_info"][:, 1],
        anchor_boxes=labels["anchor_boxes"],
        training=False,
    )
    record = next(iter(tf.data.TFRecordDataset(str(records))))
    decoder = tf_example_decoder.TfExampleDecoder(include_mask=True)
    image = decoder.decode(record)["image"].numpy()[None]
    folder = tmp_path / "export" / "saved_model"
    call = "serving_default", {"inputs": image}
    (found,) = standalone.run_standalone(folder, [call])
    (count,) = wanted["num_detections"].numpy()
    assert found["num_detections"] == count > 0

    def assert_found(outputs, name):
        expected = wanted[name][0, :count]
        outputs = outputs.reshape(wanted[name].shape)[0, :count]
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)

    names = ("detection_boxes", "detection_scores", "detection_masks")
    for name in (*names, "detection_classes"):
        assert_found(found[name], name)
    if shutil.which("g++") is None:
        pytest.skip("C++ needs g++")
    program = serve_check.build(pytestconfig.cache.mkdir("serve_check"))
    call = program, folder, image, tmp_path, "serving_default", "inputs"
    for name in names:
        assert_found(serve_check.run(*call, name), name)
