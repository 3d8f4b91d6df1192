"""The Model Garden's trainer and `train.py` take the same steps."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf.training.averages import Averages
from lambdanet_tf.training.optimizer import recipe_optimizer
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.steps import update_step

pytest.importorskip("lambdanet_tf.garden", exc_type=ImportError)
base_trainer = pytest.importorskip("official.core.base_trainer")
task_factory = pytest.importorskip("official.core.task_factory")
garden_tasks = pytest.importorskip("tests.support.garden_tasks")

pytestmark = [
    pytest.mark.garden,
    pytest.mark.filterwarnings("ignore"),  # The Model Garden's own.
]

STEPS = 3
WEIGHT_DECAY = 0.01
SCHEDULE = {
    "learning_rate": {
        "type": "cosine",
        "cosine": {
            "initial_learning_rate": 0.2, "decay_steps": 4, "offset": 2
        },
    },
    "warmup": {
        "type": "linear",
        "linear": {"warmup_steps": 2, "warmup_learning_rate": 0.0},
    },
}  # fmt: skip


def steps_of_train_py(network, batches):
    """Takes a step of `train.py` with each batch: images, one-hot labels."""
    recipe = Recipe(
        batch_size=len(batches[0][0]),
        epochs=1,
        warmup_epochs=2 / 6,
        learning_rate=0.2,
        base_batch_size=0,
        momentum=0.9,
        weight_decay=WEIGHT_DECAY,
        label_smoothing=0.1,
        ema_decay=0.0,
    )
    state = TrainState(
        network,
        recipe_optimizer(recipe, steps_per_epoch=6),
        Averages(network, recipe.ema_decay),
    )
    step = update_step(state, recipe)
    for number, (images, labels) in enumerate(batches):
        step(images, labels, tf.constant(number, tf.int64))


def test_three_steps_are_those_of_train_py(rng):
    params = garden_tasks.classifier("unread")
    params.task.losses.l2_weight_decay = WEIGHT_DECAY
    params.task.model.dropout_rate = 0.0  # Either would draw other numbers.
    params.trainer.optimizer_config.override(SCHEDULE)
    params.trainer.optimizer_config.ema = None
    task = task_factory.get_task(params.task)
    model = task.build_model()
    config = model.backbone.get_config()
    network = models.build(
        config["network"],
        **config["changes"],
        input_shape=config["image_shape"],
        norm_momentum=config["norm_momentum"],
        norm_epsilon=config["norm_epsilon"],
        classes=3,
        classifier_activation=None,
        dropout_rate=0.0,
        include_preprocessing=False,
        kernel_regularizer=tf.keras.regularizers.L2(WEIGHT_DECAY / 2),
    )
    before = weights_of(model)
    models.set_weights(network, before, "the Model Garden's model")

    images = rng.normal(size=(STEPS, 4, 64, 64, 3)).astype(np.float32)
    labels = rng.integers(0, 3, (STEPS, 4))
    batches = tf.data.Dataset.from_tensor_slices((images, labels))
    trainer = base_trainer.Trainer(
        params,
        task,
        model,
        task.create_optimizer(params.trainer.optimizer_config),
        evaluate=False,
        train_dataset=batches,
    )
    trainer.train(tf.constant(STEPS))
    steps_of_train_py(
        network,
        [(x, tf.one_hot(y, 3)) for x, y in zip(images, labels, strict=True)],
    )

    wanted = weights_of(model)
    for name, weight in models.named_weights(network).items():
        np.testing.assert_allclose(
            weight, wanted[name], rtol=1e-4, atol=1e-6, err_msg=name
        )
    moved = [name for name in wanted if np.any(wanted[name] != before[name])]
    assert len(moved) > 0.9 * len(wanted)


def weights_of(model):
    """The weights of a classifier of the Model Garden by our names."""
    kernel, bias = model.layers[-1].weights
    weights = {
        **models.named_weights(model.backbone),
        "predictions/kernel": kernel,
        "predictions/bias": bias,
    }
    return {name: weight.numpy() for name, weight in weights.items()}
