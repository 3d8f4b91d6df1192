"""Our networks beside timm's own, where torch and timm are installed.

pip install "lambdanet-tf[timm]"
"""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.networks import timm_models
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.models.timm.weight_names import from_timm
from tests.support import checks
from tests.support import networks
from tests.support import timm_golden
from tests.support.timm_golden import TIMM_NAMES
from tests.support.timm_golden import TINY
from tests.support.timm_golden import VARIANTS

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


def both(spec, size, torch, **arguments):
    """timm's network and ours with the golden weights."""
    state = timm_golden.state_dict(spec, image_size=size[0])
    if spec.name in TIMM_NAMES:
        theirs = timm_models.published(TIMM_NAMES[spec.name], size[0])
    else:
        theirs = timm_models.build(spec, image_size=size[0])
    tensors = {key: torch.tensor(array) for key, array in state.items()}
    theirs.load_state_dict(tensors, strict=True)
    arguments |= {"input_shape": (*size, 3), "include_preprocessing": False}
    ours = models.ResNet(spec, **arguments)
    models.set_weights(ours, from_timm(state, spec), "theirs")
    return theirs, ours


SPECS = [specs.RESNETS[name] for name in TIMM_NAMES]
COMPARED = [
    *((spec, height, 1e-5) for spec in SPECS for height in (128, 160)),
    *((specs.replace(TINY, v), 64, 2e-5) for v in VARIANTS.values()),
]


@pytest.mark.parametrize(("spec", "height", "tolerance"), COMPARED)
def test_logits_are_timms(spec, height, tolerance, torch, rng):
    size = height, height if spec.scope is None else 96
    network, model = both(spec, size, torch, classifier_activation=None)
    network.eval()
    images = rng.normal(size=(2, *size, 3)).astype(np.float32)
    with torch.inference_mode():
        logits = network(torch.tensor(images.transpose(0, 3, 1, 2)))
    checks.assert_close(model(images), logits.numpy(), tolerance)


@pytest.mark.parametrize("spec", SPECS)
def test_training_is_timms(spec, torch):
    tf.keras.mixed_precision.set_global_policy("float64")
    size = (96 if spec.scope is None else 64), 96
    features = {"include_top": False, "pooling": "avg"}
    network, model = both(spec, size, torch, **features)
    network.double().train()
    rng = np.random.default_rng(2)
    images = rng.normal(size=(4, *size, 3)).astype(np.float32)
    cotangent = rng.normal(size=(4, 2048))

    x = torch.tensor(images.transpose(0, 3, 1, 2)).double().requires_grad_()
    features = network.forward_features(x).mean((2, 3))
    (features * torch.tensor(cotangent)).sum().backward()

    named = models.named_weights(model)
    trained = {n: checks.raw(w) for n, w in named.items() if "moving" not in n}
    outputs, *gradients, images_gradient = checks.with_gradients(
        lambda *tensors: model(tensors[-1], training=True),
        [*trained.values(), tf.constant(images)],
        lambda outputs: tf.reduce_sum(outputs * cotangent),
    )
    checks.assert_close(outputs, features.detach().numpy(), 1e-9)
    # Weights and gradients go the same way; it rounds them to float32.
    after = {k: tensor.numpy() for k, tensor in network.state_dict().items()}
    found = {k: np.zeros_like(array) for k, array in after.items()}
    for key, parameter in network.named_parameters():
        if parameter.grad is not None:  # The classifier has none here.
            found[key] = parameter.grad.numpy()
    expected = from_timm(found, spec)
    assert len(trained) > 100
    for key, gradient in zip(trained, gradients, strict=True):
        assert np.any(gradient != 0), key
        checks.assert_close(gradient, expected[key], 1e-7)
    expected = x.grad.numpy().transpose(0, 2, 3, 1)
    checks.assert_close(images_gradient, expected, 1e-6)

    after = from_timm(after, spec)
    for key, mean in networks.arrays(model).items():
        if key.endswith("moving_mean"):
            checks.assert_close(mean, after[key], 1e-6)
