"""Our networks beside timm's own, where torch and timm are installed.

pip install "lambdanet-tf[timm]"
pytest -m slow tests/models/test_timm_live.py
"""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.networks import timm_models
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.models.timm import weight_names as timm_names
from tests.support import checks
from tests.support import timm_golden

pytestmark = [
    pytest.mark.once,
    pytest.mark.slow,
    pytest.mark.skipif(
        timm_models.missing() is not None,
        reason=timm_models.missing() or "installed",
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def torch():
    return timm_models.torch_beside_tensorflow()


@pytest.mark.parametrize("name", timm_golden.TIMM_NAMES)
def test_training_is_timms(name, torch):
    """Batch statistics and the gradient of every weight, in float64."""
    tf.keras.mixed_precision.set_global_policy("float64")
    spec, batch, size = specs.RESNETS[name], 4, (64, 96)
    if spec.scope is None:
        size = (96, 96)
    network = timm_models.published(timm_golden.TIMM_NAMES[name], size[0])
    state = timm_golden.state_dict(spec, image_size=size[0])
    tensors = {key: torch.tensor(array) for key, array in state.items()}
    network.load_state_dict(tensors, strict=True)
    network = network.double().train()
    rng = np.random.default_rng(2)
    images = rng.normal(size=(batch, *size, 3)).astype(np.float32)
    cotangent = rng.normal(size=(batch, 2048))

    x = torch.tensor(images.transpose(0, 3, 1, 2)).double().requires_grad_()
    features = network.forward_features(x).mean((2, 3))
    (features * torch.tensor(cotangent)).sum().backward()

    model = models.build(
        name,
        input_shape=(*size, 3),
        include_top=False,
        pooling="avg",
        include_preprocessing=False,
    )
    tensors = timm_golden.tensors(spec, image_size=size[0])
    start = timm_names.from_timm(tensors, state, "theirs")
    models.set_weights(model, start, "theirs")
    inputs = tf.constant(images)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = model(inputs, training=True)
        loss = tf.reduce_sum(outputs * cotangent)
    trained = {
        name: checks.raw(weight)
        for name, weight in models.named_weights(model).items()
        if "moving" not in name
    }
    gradients = tape.gradient(loss, {**trained, "images": inputs})

    checks.assert_close(outputs, features.detach().numpy(), 1e-9)
    # Weights and gradients go the same way; it rounds them to float32.
    theirs = {k: np.zeros_like(array) for k, array in state.items()}
    for key, parameter in network.named_parameters():
        if parameter.grad is not None:  # The classifier has none here.
            theirs[key] = parameter.grad.numpy()
    expected = timm_names.from_timm(tensors, theirs, "gradients")
    assert len(trained) > 100
    for key in trained:
        gradient = np.asarray(tf.convert_to_tensor(gradients[key]))
        assert np.any(gradient != 0), key
        checks.assert_close(gradient, expected[key], 1e-7)
    images_gradient = x.grad.numpy().transpose(0, 2, 3, 1)
    checks.assert_close(gradients["images"], images_gradient, 1e-6)
