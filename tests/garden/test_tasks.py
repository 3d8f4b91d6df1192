"""Tasks of the Model Garden with lambda networks: training, weights, export."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf.serving import standalone
from tests.support import checks
from tests.support import image_sets
from tests.support import networks
from tests.support import serve_check

garden = pytest.importorskip("lambdanet_tf.garden", exc_type=ImportError)
pytest.importorskip("official.vision.registry_imports")
exp_factory = pytest.importorskip("official.core.exp_factory")
task_factory = pytest.importorskip("official.core.task_factory")
hyperparams = pytest.importorskip("official.modeling.hyperparams")
segmentation = pytest.importorskip(
    "official.vision.tasks.semantic_segmentation"
)
garden_tasks = pytest.importorskip("tests.garden.garden_tasks")

pytestmark = [
    pytest.mark.garden,
    pytest.mark.filterwarnings("ignore"),  # The Model Garden's own.
]


def command(name, experiment, folder, params, *flags):
    """Runs a command of the package on an experiment with these params."""
    file = str(folder / "tiny.yaml")
    hyperparams.save_params_dict_to_yaml(params, file)
    module = f"lambdanet_tf.garden.{name}"
    flags = f"--experiment={experiment}", f"--config_file={file}", *flags
    subprocess.run(
        [sys.executable, "-m", module, *flags], check=True, capture_output=True
    )


def twin(params):
    """Our network of a classifier of the Model Garden."""
    norm = params.task.model.norm_activation
    return models.build(
        **garden_tasks.BACKBONE["lambda_resnet"],
        input_shape=tuple(params.task.model.input_size),
        norm_momentum=norm.norm_momentum,
        norm_epsilon=norm.norm_epsilon,
        classes=3,
        classifier_activation=None,
        include_preprocessing=False,
    )


def arrays_of(model):
    """The weights of a classifier of the Model Garden, by our names."""
    kernel, bias = model.layers[-1].weights
    head = {"predictions/kernel": kernel, "predictions/bias": bias}
    weights = models.named_weights(model.backbone) | head
    return {name: weight.numpy() for name, weight in weights.items()}


@pytest.fixture(scope="module")
def classified(tmp_path_factory):
    """The folder of a classification run, its params and its model."""
    folder = tmp_path_factory.mktemp("classified")
    records = folder / "images.tfrecord"
    files = [image_sets.jpeg([30 * i] * 3, size=(64, 64)) for i in range(8)]
    examples = [image_sets.example(x, i % 3) for i, x in enumerate(files)]
    image_sets.write_file(records, examples)
    params, name = garden_tasks.classifier(records), "lambda_resnet_imagenet"
    flags = "--mode=train_and_eval", f"--model_dir={folder}"
    command("train", name, folder, params, *flags)
    params = exp_factory.get_exp_config(name)
    file = str(folder / "params.yaml")
    hyperparams.override_params_dict(params, file, is_strict=True)
    model = task_factory.get_task(params.task).build_model()
    checkpoint = tf.train.latest_checkpoint(str(folder))
    status = tf.train.Checkpoint(model=model).read(checkpoint)
    status.expect_partial().assert_existing_objects_matched()
    return folder, params, model


@pytest.mark.slow
def test_weights_come_back_from_a_checkpoint(classified, tmp_path, rng):
    """As docs/detection.md shows it, to a classifier."""
    folder, params, model = classified
    network = twin(params)
    models.set_weights(network, arrays_of(model), str(folder))
    models.save_weights(network, tmp_path / "weights.npz")
    models.load_weights(network, tmp_path / "weights.npz")
    images = checks.normal(rng, 2, 64, 64, 3)
    wanted = model(images, training=False)
    found = network(images, training=False)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_detector_from_a_classifier_to_its_export(
    classified, tmp_path, pytestconfig
):
    """It learns masks; its export runs with TensorFlow alone, and in C++."""
    folder, _, classifier = classified
    records = tmp_path / "scenes.tfrecord"
    garden_tasks.write_scenes(records, np.random.default_rng(0))
    params = garden_tasks.detector(records)
    params.task.losses.l2_weight_decay = 0.0  # Would move kernels as well.
    params.task.validation_data.global_batch_size = 1
    params.task.init_checkpoint = str(folder)
    params.task.init_checkpoint_modules = "backbone"
    task = task_factory.get_task(params.task, logging_dir=str(tmp_path))
    model = task.build_model()
    task.initialize(model)
    networks.assert_weights(model.backbone, classifier.backbone)

    optimizer = task.create_optimizer(params.trainer.optimizer_config)
    batches = iter(task.build_inputs(params.task.train_data))
    for _ in range(3):  # The first moves the zero gammas alone.
        logs = task.train_step(next(batches), model, optimizer)
        assert np.isfinite(logs[task.loss])
    still = networks.same_weights(model.backbone, classifier.backbone)
    # The normalization after a lambda layer undoes a scale of the values.
    assert all(name.endswith("value_norm/gamma") for name in still)

    tf.train.Checkpoint(model=model).save(str(tmp_path / "run" / "checkpoint"))
    command(
        *("export", "lambda_resnet_maskrcnn_coco", tmp_path, params),
        *(f"--checkpoint_path={tmp_path}/run", f"--export_dir={tmp_path}"),
        *("--batch_size=1", "--input_type=image_tensor"),
        f"--input_image_size={garden_tasks.SIZE},{garden_tasks.SIZE}",
    )
    # The evaluation's own batch, and the same image out of its file.
    batches = task.build_inputs(params.task.validation_data)
    ((images, labels),) = batches.take(1)
    wanted = model(
        images,
        image_shape=labels["image_info"][:, 1],
        anchor_boxes=labels["anchor_boxes"],
        training=False,
    )
    record = next(tf.data.TFRecordDataset(str(records)).as_numpy_iterator())
    feature = tf.train.Example.FromString(record).features.feature
    encoded = feature["image/encoded"].bytes_list.value[0]
    image = tf.io.decode_image(encoded, channels=3).numpy()[None]
    call = "serving_default", {"inputs": image}
    (found,) = standalone.run_standalone(tmp_path / "saved_model", [call])
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
    for name in names:
        call = tmp_path / "saved_model", image, tmp_path, "serving_default"
        assert_found(serve_check.run(program, *call, "inputs", name), name)


@pytest.mark.slow
def test_semantic_segmentation_needs_the_backbone_alone(rng):
    """A step of the Model Garden's DeepLabV3+ moves a lambda backbone."""
    config = segmentation.exp_cfg.SemanticSegmentationTask()
    config.model.backbone = garden.Backbone()
    aspp = {"level": 4, "num_filters": 8, "dilation_rates": [2]}
    head = {"level": 4, "num_convs": 1, "num_filters": 8, "low_level": 2}
    head |= {"feature_fusion": "deeplabv3plus", "low_level_num_filters": 8}
    config.model.override(
        {
            "num_classes": 3,
            "input_size": [None, None, 3],
            "backbone": garden_tasks.BACKBONE,
            "head": head,
            "decoder": {"type": "aspp", "aspp": aspp},
            "norm_activation": {"use_sync_bn": False},
        }
    )
    task = segmentation.SemanticSegmentationTask(config)
    model, optimizer = task.build_model(), tf.keras.optimizers.legacy.Adam(0.01)
    before = networks.arrays(model.backbone)
    labels = {
        "masks": tf.constant(rng.integers(0, 3, (2, 64, 96, 1)), tf.float32),
        "valid_masks": tf.ones([2, 64, 96, 1], tf.bool),
        "image_info": tf.zeros([2, 4, 2]),
    }
    batch = tf.constant(checks.normal(rng, 2, 64, 96, 3)), labels
    assert np.isfinite(task.train_step(batch, model, optimizer)[task.loss])
    assert "stem_conv1/kernel" not in networks.same_weights(
        model.backbone, before
    )
