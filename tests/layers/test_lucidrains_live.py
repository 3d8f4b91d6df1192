"""Our layer beside that of lambda-networks, where torch and it are installed.

pip install "lambdanet-tf[timm]" lambda-networks
"""

import importlib.util

import numpy as np
import pytest

from benchmarks.networks import timm_models
from lambdanet_tf import layers
from tests.support import checks

PACKAGES = ("torch", "lambda_networks")
MISSING = not all(map(importlib.util.find_spec, PACKAGES))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.once,
    pytest.mark.skipif(MISSING, reason=f"needs {PACKAGES}"),
    # Of PyTorch: old functions, and drivers that this machine lacks.
    pytest.mark.filterwarnings("ignore"),
]

HEADS, KEY_DIM, FILTERS, SIZE = 2, 3, 8, 6


def their_layer(torch, scope, intra_depth, rng):
    module = importlib.import_module("lambda_networks")
    size = {"dim": 5, "dim_out": FILTERS, "dim_k": KEY_DIM, "heads": HEADS}
    place = {"n": SIZE} if scope is None else {"r": scope}
    layer = module.LambdaLayer(**size, dim_u=intra_depth, **place).double()
    for name, tensor in layer.state_dict().items():
        if tensor.dtype == torch.float64:
            low, high = (0.5, 1.5) if "var" in name else (-1.0, 1.0)
            drawn = rng.uniform(low, high, tuple(tensor.shape))
            tensor.copy_(torch.tensor(drawn))
    return layer


PARTS = {"gamma": "weight", "beta": "bias"}
PARTS |= {"mean": "running_mean", "variance": "running_var"}
# What they call each of our weights.
NAMES = {
    **{name: f"to_{name[0]}.weight" for name in ("query", "key", "value")},
    **{f"query_{ours}": f"norm_q.{theirs}" for ours, theirs in PARTS.items()},
    **{f"value_{ours}": f"norm_v.{theirs}" for ours, theirs in PARTS.items()},
    "position_bias": "pos_conv.bias",
}


def as_ours(name, x, intra_depth):
    """Their array of one of our weights, its axes as we order them."""
    if name.startswith(("key", "value")):  # `(u k, ...)` -> `(k u, ...)`
        x = x.reshape(intra_depth, -1, *x.shape[1:])
        x = np.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])
    if name in ("query", "key", "value"):
        return x[:, :, 0, 0].T
    if name == "embeddings" and x.ndim == 5:
        return x[:, :, 0].transpose(2, 3, 0, 1)
    return x


@pytest.mark.parametrize(
    ("scope", "intra_depth", "training"),
    [(None, 1, False), (None, 2, True), (3, 2, False), (5, 1, True)],
)
def test_outputs_and_gradients_are_theirs(scope, intra_depth, training, rng):
    torch = timm_models.torch_beside_tensorflow()
    theirs = their_layer(torch, scope, intra_depth, rng).train(training)
    size = {"num_heads": HEADS, "key_dim": KEY_DIM, "intra_depth": intra_depth}
    place = {"scope": scope, "use_position_bias": scope is not None}
    exact = {"norm_epsilon": 1e-5, "dtype": "float64"}
    ours = layers.LambdaLayer(FILTERS, **size, **place, **exact)
    images = rng.normal(size=[2, SIZE, SIZE, 5])
    ours.build(images.shape)
    table = "pos_conv.weight" if scope else "rel_pos_emb"
    names, state = {**NAMES, "embeddings": table}, theirs.state_dict()
    for name, weight in checks.reference_weights(ours).items():
        weight.assign(as_ours(name, state[names[name]].numpy(), intra_depth))
    cotangent = rng.normal(size=[2, SIZE, SIZE, FILTERS])

    x = torch.tensor(images.transpose(0, 3, 1, 2)).requires_grad_()
    outputs = theirs(x).permute(0, 2, 3, 1)
    (outputs * torch.tensor(cotangent)).sum().backward()
    expected = {n: p.grad.numpy() for n, p in theirs.named_parameters()}

    answer, gradients = checks.output_and_gradients(
        ours, {"inputs": images}, cotangent, training
    )
    checks.assert_close(answer, outputs.detach().numpy(), 1e-12)
    found = gradients.pop("inputs")
    checks.assert_close(found, x.grad.numpy().transpose(0, 2, 3, 1), 1e-12)
    for name, gradient in gradients.items():
        wanted = as_ours(name, expected.pop(names[name]), intra_depth)
        checks.assert_close(gradient, wanted, 1e-11)
    assert not expected
