"""Our layer beside that of lambda-networks, where torch and it are installed.

pip install "lambdanet-tf[timm]" lambda-networks
pytest -m slow tests/layers/test_lucidrains_live.py
"""

import importlib
import importlib.util

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.networks import timm_models
from lambdanet_tf import layers
from tests.support import checks

PACKAGES = ("torch", "lambda_networks")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.once,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, PACKAGES)),
        reason="torch or lambda-networks is not installed",
    ),
    # Of PyTorch: old functions, and drivers that this machine lacks.
    pytest.mark.filterwarnings("ignore"),
]

HEADS, KEY_DIM, FILTERS, SIZE = 2, 3, 8, 6


def their_layer(torch, scope, intra_depth, rng):
    """Their layer in float64 with drawn weights."""
    module = importlib.import_module("lambda_networks")
    place = {"n": SIZE} if scope is None else {"r": scope}
    layer = module.LambdaLayer(
        dim=5,
        dim_out=FILTERS,
        dim_k=KEY_DIM,
        heads=HEADS,
        dim_u=intra_depth,
        **place,
    ).double()
    for name, tensor in layer.state_dict().items():
        if tensor.dtype == torch.float64:
            low, high = (0.5, 1.5) if "var" in name else (-1.0, 1.0)
            drawn = rng.uniform(low, high, tuple(tensor.shape))
            tensor.copy_(torch.tensor(drawn))
    return layer


def copy_weights(theirs, ours, intra_depth):
    """Puts their weights into our layer; returns its weights by their names."""
    state = {name: x.numpy() for name, x in theirs.state_dict().items()}

    def depth_last(x):  # `(u k, ...)` -> `(k u, ...)`
        x = x.reshape(intra_depth, -1, *x.shape[1:])
        return np.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])

    found = {
        "to_q.weight": ours.query.kernel,
        "to_k.weight": ours.key.kernel,
        "to_v.weight": ours.value.kernel,
    }
    for name, norm in (
        ("norm_q", ours.query_norm),
        ("norm_v", ours.value_norm),
    ):
        found[f"{name}.weight"] = norm.gamma
        found[f"{name}.bias"] = norm.beta
        found[f"{name}.running_mean"] = norm.moving_mean
        found[f"{name}.running_var"] = norm.moving_variance
    if ours.scope is None:
        found["rel_pos_emb"] = ours.position_embedding.embeddings
    else:
        found["pos_conv.weight"] = ours.position_embedding.embeddings
        found["pos_conv.bias"] = ours.position_bias
    moves = {
        "to_q": lambda x: x[:, :, 0, 0].T,
        "to_k": lambda x: depth_last(x)[:, :, 0, 0].T,
        "to_v": lambda x: depth_last(x)[:, :, 0, 0].T,
        "norm_v": depth_last,
        "pos_conv": lambda x: (
            x if x.ndim == 1 else x[:, :, 0].transpose(2, 3, 0, 1)
        ),
    }
    move_of = {
        name: moves.get(name.partition(".")[0], lambda x: x) for name in found
    }
    for name, weight in found.items():
        weight.assign(move_of[name](state[name]))
    return found, move_of


@pytest.mark.parametrize("intra_depth", [1, 2])
@pytest.mark.parametrize("scope", [None, 3, 5])
@pytest.mark.parametrize("training", [False, True])
def test_outputs_and_gradients_are_theirs(scope, intra_depth, training, rng):
    torch = timm_models.torch_beside_tensorflow()
    theirs = their_layer(torch, scope, intra_depth, rng).train(training)
    ours = layers.LambdaLayer(
        FILTERS,
        num_heads=HEADS,
        key_dim=KEY_DIM,
        intra_depth=intra_depth,
        scope=scope,
        use_position_bias=scope is not None,
        norm_epsilon=1e-5,
        dtype="float64",
    )
    images = rng.normal(size=[2, SIZE, SIZE, 5])
    ours.build(images.shape)
    found, move_of = copy_weights(theirs, ours, intra_depth)
    cotangent = rng.normal(size=[2, SIZE, SIZE, FILTERS])

    x = torch.tensor(images.transpose(0, 3, 1, 2)).requires_grad_()
    outputs = theirs(x).permute(0, 2, 3, 1)
    (outputs * torch.tensor(cotangent)).sum().backward()
    gradients = {
        name: parameter.grad.numpy()
        for name, parameter in theirs.named_parameters()
    }

    images = tf.constant(images)
    weights = {name: checks.raw(found[name]) for name in gradients}
    with tf.GradientTape() as tape:
        tape.watch(images)
        answer = ours(images, training=training)
        loss = tf.reduce_sum(answer * cotangent)
    mine = tape.gradient(loss, {**weights, "images": images})

    checks.assert_close(answer, outputs.detach().numpy(), 1e-12)
    expected = x.grad.numpy().transpose(0, 2, 3, 1)
    checks.assert_close(mine.pop("images"), expected, 1e-12)
    for name, gradient in mine.items():
        checks.assert_close(gradient, move_of[name](gradients[name]), 1e-11)
