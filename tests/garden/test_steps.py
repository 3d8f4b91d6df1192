"""The Model Garden's trainer and `train.py` take the same steps."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import training
from lambdanet_tf.training.state import TrainState
from lambdanet_tf.training.steps import update_step

pytest.importorskip("lambdanet_tf.garden", exc_type=ImportError)
base_trainer = pytest.importorskip("official.core.base_trainer")
task_factory = pytest.importorskip("official.core.task_factory")
garden_tasks = pytest.importorskip("tests.garden.garden_tasks")


@pytest.mark.garden
@pytest.mark.filterwarnings("ignore")  # The Model Garden's own.
def test_three_steps_are_those_of_train_py(rng):
    recipe = training.Recipe(
        batch_size=4,
        epochs=1,
        schedule="constant",
        warmup_epochs=0.0,
        learning_rate=0.05,
        base_batch_size=0,
        momentum=0.9,
        weight_decay=0.01,
        label_smoothing=0.1,
        ema_decay=0.0,
    )
    params = garden_tasks.classifier("unread")
    params.task.losses.l2_weight_decay = recipe.weight_decay
    params.task.model.dropout_rate = 0.0  # Either would draw other numbers.
    optimization = params.trainer.optimizer_config
    optimization.learning_rate.constant.learning_rate = recipe.learning_rate
    optimization.ema = None
    task = task_factory.get_task(params.task)
    model = task.build_model()
    norm = params.task.model.norm_activation
    network = models.build(
        **garden_tasks.BACKBONE["lambda_resnet"],
        input_shape=tuple(params.task.model.input_size),
        norm_momentum=norm.norm_momentum,
        norm_epsilon=norm.norm_epsilon,
        classes=3,
        classifier_activation=None,
        dropout_rate=0.0,
        include_preprocessing=False,
        kernel_regularizer=tf.keras.regularizers.L2(recipe.weight_decay / 2),
    )
    kernel, bias = model.layers[-1].weights
    head = {"predictions/kernel": kernel, "predictions/bias": bias}
    weights = models.named_weights(model.backbone) | head
    before = {name: weight.numpy() for name, weight in weights.items()}
    models.set_weights(network, before, "the Model Garden's model")

    images = rng.normal(size=(3, 4, 64, 64, 3)).astype(np.float32)
    labels = rng.integers(0, 3, (3, 4))
    base_trainer.Trainer(
        params,
        task,
        model,
        task.create_optimizer(optimization),
        evaluate=False,
        train_dataset=tf.data.Dataset.from_tensor_slices((images, labels)),
    ).train(tf.constant(3))
    optimizer = training.recipe_optimizer(recipe, steps_per_epoch=3)
    averages = training.Averages(network, recipe.ema_decay)
    step = update_step(TrainState(network, optimizer, averages), recipe)
    for number, (x, y) in enumerate(zip(images, labels, strict=True)):
        step(x, tf.one_hot(y, 3), tf.constant(number, tf.int64))

    after = {name: weight.numpy() for name, weight in weights.items()}
    for name, weight in models.named_weights(network).items():
        np.testing.assert_allclose(
            weight, after[name], rtol=1e-4, atol=1e-6, err_msg=name
        )
    moved = [name for name in after if np.any(before[name] != after[name])]
    assert len(moved) > 0.9 * len(after)
