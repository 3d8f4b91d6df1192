"""Tasks of the Model Garden with lambda networks: training, weights."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models

garden = pytest.importorskip("lambdanet_tf.garden", exc_type=ImportError)
pytest.importorskip("official.vision.registry_imports")
task_factory = pytest.importorskip("official.core.task_factory")
train_lib = pytest.importorskip("official.core.train_lib")
segmentation = pytest.importorskip(
    "official.vision.configs.semantic_segmentation"
)
segmentation_task = pytest.importorskip(
    "official.vision.tasks.semantic_segmentation"
)
garden_weights = pytest.importorskip("lambdanet_tf.garden.weights")
garden_tasks = pytest.importorskip("tests.support.garden_tasks")

pytestmark = [
    pytest.mark.garden,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # The Model Garden's own.
]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenes") / "scenes.tfrecord"
    garden_tasks.write_scenes(path, np.random.default_rng(0))
    return path


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


def unmoved(before, after):
    """Names of weights that did not change, and should have.

    The normalization after a lambda layer undoes a scale of the values.
    """
    return [
        name
        for name, weight in before.items()
        if np.array_equal(weight, after[name])
        and not name.endswith("value_norm/gamma")
    ]


def test_a_detector_learns_masks_and_is_evaluated(scenes, tmp_path):
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
    assert unmoved(before, after) == []

    task.build_metrics(training=False)
    state = None
    for batch in task.build_inputs(params.task.validation_data).take(2):
        logs = task.validation_step(batch, model)
        state = task.aggregate_logs(state, logs)
    metrics = task.reduce_aggregated_logs(state)
    assert {"AP", "AP50", "mask_AP", "mask_AP50"} <= set(metrics)


def test_a_detector_begins_from_a_classifier(classified, scenes):
    folder, _, model = classified
    params = garden_tasks.detector(scenes)
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


@pytest.mark.parametrize("kind", ["classifier", "backbone"])
def test_weights_come_back_from_a_checkpoint(
    classified, scenes, tmp_path, rng, kind
):
    folder, params, model = classified
    if kind == "backbone":
        norm = params.task.model.norm_activation
        params = garden_tasks.detector(scenes)
        params.task.model.norm_activation = norm
    path = tmp_path / "weights.npz"
    arguments = garden_weights.save_checkpoint_weights(params, folder, path)
    network = models.build(**arguments, include_preprocessing=False)
    images = rng.normal(size=(2, 64, 64, 3)).astype(np.float32)
    if kind == "classifier":
        wanted = tf.nn.softmax(model(images, training=False))
    else:
        wanted = model.backbone(images, training=False)["5"]
    np.testing.assert_allclose(
        network(images, training=False), wanted, rtol=1e-4, atol=1e-5
    )


def test_averaged_weights_are_kept_beside_the_others(classified, tmp_path):
    folder, params, model = classified
    arguments = garden_weights.save_checkpoint_weights(
        params, folder / "ema_checkpoints", tmp_path / "averages.npz"
    )
    averages = models.build(**arguments)
    kernel = "stem_conv1/kernel"
    assert not np.array_equal(
        snapshot(averages)[kernel], snapshot(model.backbone)[kernel]
    )


def test_what_has_no_weight_file(classified, tmp_path):
    folder, params, _ = classified
    with pytest.raises(ValueError, match="`checkpoint_path` must be"):
        garden_weights.save_checkpoint_weights(params, tmp_path, "weights.npz")
    params = params.replace()
    params.task.model.backbone.type = "resnet"
    with pytest.raises(ValueError, match="must be a backbone of lambdanet_tf"):
        garden_weights.save_checkpoint_weights(params, folder, "weights.npz")


def test_semantic_segmentation_needs_the_backbone_alone(rng):
    """The Model Garden's DeepLabV3+ learns with a lambda backbone."""
    backbone = garden.Backbone()
    backbone.override(garden_tasks.BACKBONE)
    config = segmentation.SemanticSegmentationTask()
    config.model.override(
        {
            "num_classes": 3,
            "input_size": [None, None, 3],
            "head": {
                "level": 4, "num_convs": 1, "num_filters": 8, "low_level": 2,
                "feature_fusion": "deeplabv3plus", "low_level_num_filters": 8,
            },
            "decoder": {
                "type": "aspp",
                "aspp": {"level": 4, "num_filters": 8, "dilation_rates": [2]},
            },
            "norm_activation": {"use_sync_bn": False},
        }
    )  # fmt: skip
    config.model.backbone = backbone
    task = segmentation_task.SemanticSegmentationTask(config)
    model = task.build_model()
    before = snapshot(model.backbone)
    optimizer = tf.keras.optimizers.legacy.Adam(0.01)
    masks = np.repeat(rng.integers(0, 3, (2, 1, 96, 1)), 64, axis=1)
    images = masks + 0.1 * rng.normal(size=(2, 64, 96, 3))
    images = tf.constant(images, tf.float32)
    labels = {
        "masks": tf.constant(masks, tf.float32),
        "valid_masks": tf.ones([2, 64, 96, 1], tf.bool),
        "image_info": tf.zeros([2, 4, 2]),
    }
    losses = [
        float(task.train_step((images, labels), model, optimizer)[task.loss])
        for _ in range(5)
    ]
    assert losses[-1] < 0.97 * losses[0]
    after = snapshot(model.backbone)
    for name in ("stem_conv1/kernel", "stage4_block2_lambda/query/kernel"):
        assert not np.array_equal(before[name], after[name])
