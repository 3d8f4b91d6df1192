"""Lambda layers of other projects, where they are installed (PyTorch).

    pip install torch timm lambda-networks

Both compute the lambda layer of the paper with biases of their own; weights
and values do not matter for the time.
"""

import importlib.util

from benchmarks.networks import timm_models

THREADS = 2


def steps(line):
    """Forward and training steps of the layers that can compute a line.

    Args:
        line: a `benchmarks.layers.speed.Line`.

    Returns:
        Dict from name to (forward, training); empty where nothing fits.

    Raises:
        ImportError: if PyTorch is missing.
    """
    import torch  # noqa: PLC0415

    torch.set_num_threads(THREADS)
    layers = {**_timm(line), **_lucidrains(line)}
    inputs = torch.randn(line.batch, line.filters, *line.grid)
    return {
        name: (
            _forward(torch, layer, inputs),
            _training(torch, layer, inputs),
        )
        for name, layer in layers.items()
    }


def _forward(torch, layer, inputs):
    def run():
        layer.eval()
        with torch.inference_mode():
            layer(inputs)

    return run


def _training(torch, layer, inputs):
    inputs = inputs.clone().requires_grad_()

    def run():
        layer.train()
        layer.zero_grad()
        inputs.grad = None
        torch.square(layer(inputs)).sum().backward()

    return run


def _plain_image(line):
    return len(line.grid) == 2 and not line.causal


def _timm(line):
    """timm's LambdaLayer: `r` for a local scope, `feat_size` for global."""
    if not _plain_image(line) or line.intra_depth > 1:
        return {}
    if timm_models.missing() is not None:
        return {}
    layer = timm_models.module("timm.layers.lambda_layer").LambdaLayer
    common = {"num_heads": line.num_heads, "dim_head": line.key_dim}
    if line.scope is not None:
        return {"timm conv": layer(line.filters, r=line.scope, **common)}
    return {
        "timm table": layer(line.filters, feat_size=line.grid, r=None, **common)
    }


def _lucidrains(line):
    """lambda-networks: `r` for a local scope, `n` for a square global map."""
    if not _plain_image(line):
        return {}
    if importlib.util.find_spec("lambda_networks") is None:
        return {}
    layer = importlib.import_module("lambda_networks").LambdaLayer
    common = {
        "dim": line.filters,
        "dim_out": line.filters,
        "dim_k": line.key_dim,
        "heads": line.num_heads,
        "dim_u": line.intra_depth,
    }
    if line.scope is not None:
        return {"lucidrains": layer(r=line.scope, **common)}
    if line.grid[0] != line.grid[1]:
        return {}
    return {"lucidrains": layer(n=line.grid[0], **common)}
