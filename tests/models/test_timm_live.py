"""Our networks beside timm's own, where torch and timm are installed.

pip install "lambdanet-tf[timm]"
pytest -m slow tests/models/test_timm_live.py
"""

import importlib

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import records
from benchmarks.networks import timm_models
from benchmarks.networks import timm_speed
from lambdanet_tf import convert
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.models.timm import weight_names as timm_names
from lambdanet_tf.models.timm.safetensors import write_safetensors
from tests.support import checks
from tests.support import timm_golden
from tests.support.timm_golden import EXPRESSIBLE
from tests.support.timm_golden import TINY

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

every_network = pytest.mark.parametrize("name", timm_golden.TIMM_NAMES)


@pytest.fixture(scope="module", autouse=True)
def torch():
    return timm_models.torch_beside_tensorflow()


def random_state(network, seed):
    """Weights that keep activations moderate, other than the golden ones."""
    rng = np.random.default_rng(seed)
    state = {}
    for key, tensor in network.state_dict().items():
        shape = tuple(tensor.shape)
        if key.endswith("num_batches_tracked"):
            state[key] = np.zeros(shape, np.int64)
            continue
        if key.endswith("running_var") or (
            len(shape) == 1 and key.endswith("weight")
        ):
            value = rng.uniform(0.5, 1.5, shape)
        elif len(shape) == 1:
            value = rng.normal(0, 0.2, shape)
        else:
            scale = 0.05 if "pos_emb" in key or "conv_lambda" in key else 1.0
            fan_in = 1 if scale < 1 else np.prod(shape[1:])
            value = rng.normal(0, scale / np.sqrt(fan_in), shape)
        state[key] = value.astype(np.float32)
    return state


def load(torch, network, state):
    tensors = {key: torch.tensor(array) for key, array in state.items()}
    network.load_state_dict(tensors, strict=True)


def logits_of(torch, network, images):
    network.eval()
    with torch.inference_mode():
        x = torch.tensor(images.transpose(0, 3, 1, 2))
        return network(x).numpy()


@every_network
def test_the_names_are_timms(name):
    network = timm_models.published(timm_golden.TIMM_NAMES[name])
    state = network.state_dict()
    tensors = timm_golden.tensors(specs.RESNETS[name])
    assert [tensor.key for tensor in tensors] == list(state)
    for tensor in tensors:
        assert tensor.shape == tuple(state[tensor.key].shape)
    trained = sum(p.numel() for p in network.parameters())
    assert trained == specs.PRESETS[name].parameters


@every_network
@pytest.mark.parametrize("size", [(128, 192), (160, 224), (256, 256)])
def test_logits_are_timms(name, size, torch, tmp_path):
    network = timm_models.published(timm_golden.TIMM_NAMES[name], size)
    state = random_state(network, seed=sum(size))
    load(torch, network, state)
    path = tmp_path / "model.safetensors"
    write_safetensors(path, state)
    model = models.build(
        name,
        input_shape=(*size, 3),
        classifier_activation=None,
        include_preprocessing=False,
        weights=path,
    )
    images = np.random.default_rng(0).normal(size=(2, *size, 3))
    images = images.astype(np.float32)
    expected = logits_of(torch, network, images)
    checks.assert_close(model(images), expected, 1e-5)


@pytest.mark.parametrize("variant", EXPRESSIBLE)
def test_what_timm_can_express_it_computes(variant, torch, tmp_path):
    spec = specs.replace(TINY, EXPRESSIBLE[variant])
    network = timm_models.build(spec, classes=7, image_size=64)
    model = models.ResNet(
        spec,
        input_shape=(64, 64, 3),
        classes=7,
        classifier_activation=None,
        include_preprocessing=False,
    )
    checks.randomize(model, np.random.default_rng(0))
    ours = {k: np.asarray(w) for k, w in models.named_weights(model).items()}
    tensors = timm_names.timm_tensors(spec, 7, 3, 64)
    state = timm_names.to_timm(tensors, ours, "ours")
    assert list(state) == list(network.state_dict())
    load(torch, network, state)
    images = np.random.default_rng(0).normal(size=(2, 64, 64, 3))
    images = images.astype(np.float32)
    expected = logits_of(torch, network, images)
    checks.assert_close(model(images), expected, 2e-5)


def test_the_benchmark_at_small_size(tmp_path, capsys):
    command = "--only LambdaResNet26T --batch 1 --size 64 --seconds 4"
    command += f" --theirs eager --results {tmp_path}"
    timm_speed.main(command.split())
    rows = records.read("timm", tmp_path)
    phases = [row["case"]["phase"] for row in rows]
    assert phases == ["inference", "training"]
    assert "LambdaResNet26T" in capsys.readouterr().out


def test_timm_reads_what_is_exported(torch, tmp_path):
    name = "LambdaResNet26T"
    golden = timm_golden.outputs(name)
    model = timm_golden.network(name)
    models.save_weights(model, tmp_path / "ours.npz")
    path = tmp_path / "theirs.safetensors"
    convert.export_to_timm(tmp_path / "ours.npz", path, name)
    network = timm_models.published(timm_golden.TIMM_NAMES[name])
    load_file = importlib.import_module("safetensors.torch").load_file
    network.load_state_dict(load_file(path), strict=True)
    logits = logits_of(torch, network, timm_golden.image(*golden["hw"]))
    checks.assert_close(logits, golden["logits"], 1e-6)


@every_network
def test_training_is_timms(name, torch):
    """Batch statistics and the gradient of every weight, in float64."""
    tf.keras.mixed_precision.set_global_policy("float64")
    spec, batch, size = specs.RESNETS[name], 4, (64, 96)
    if spec.scope is None:
        size = (96, 96)
    network = timm_models.published(timm_golden.TIMM_NAMES[name], size[0])
    state = random_state(network, seed=1)
    load(torch, network, state)
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
        norm_momentum=0.9,
    )
    tensors = timm_golden.tensors(spec, image_size=size[0])
    arrays = timm_names.from_timm(tensors, state, "theirs")
    models.set_weights(model, arrays, "theirs")
    inputs = tf.constant(images)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = model(inputs, training=True)
        loss = tf.reduce_sum(outputs * cotangent)
    named = models.named_weights(model)
    trained = {
        name: checks.raw(weight)
        for name, weight in named.items()
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

    after = {k: tensor.numpy() for k, tensor in network.state_dict().items()}
    after = timm_names.from_timm(
        tensors,
        {k: 0 * v if "tracked" in k else v for k, v in after.items()},
        "",
    )
    for key, weight in named.items():
        value = np.asarray(tf.convert_to_tensor(weight))
        if key.endswith("moving_mean"):
            checks.assert_close(value, after[key], 1e-6)
        elif key.endswith("moving_variance"):
            assert_same_variance(value, after[key], 0.9 * arrays[key])


def assert_same_variance(ours, theirs, kept):
    """Moving variances after a step; `kept` is their share of the old one.

    PyTorch keeps the unbiased variance of n numbers, n / (n - 1) times the
    other; so does tf_keras where it fuses, and Keras 3 nowhere.
    """
    ratio = (theirs - kept) / (ours - kept)
    assert np.ptp(ratio) < 1e-4
    if abs(np.mean(ratio) - 1) > 1e-5:
        n = 1 / (1 - 1 / np.mean(ratio))
        # From the last maps to those of the stem.
        assert 4 * 2 * 3 * 0.99 < n < 4 * 48 * 48 * 1.01
