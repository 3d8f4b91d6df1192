"""Lambda layers of other projects in PyTorch, where they are installed.

pip install torch timm lambda-networks
"""

import importlib
import importlib.util

from benchmarks.networks import timm_models

THREADS = 2


def steps(line, device="cpu"):
    """Returns forward and training steps, by name, of layers on a device."""
    torch = timm_models.torch_beside_tensorflow()
    torch.set_num_threads(THREADS)
    inputs = torch.randn(line.batch, line.filters, *line.grid, device=device)
    is_image = len(line.grid) == 2 and not line.causal
    found = layers(line) if is_image else {}
    return {
        name: _steps(torch, x.to(device), inputs) for name, x in found.items()
    }


def _steps(torch, layer, inputs):
    watched = inputs.clone().requires_grad_()

    def sync():
        if inputs.is_cuda:
            torch.cuda.synchronize()

    def forward():
        layer.eval()
        with torch.inference_mode():
            layer(inputs)
        sync()

    def training():
        layer.train()
        layer.zero_grad()
        watched.grad = None
        torch.square(layer(watched)).sum().backward()
        sync()

    return forward, training


def layers(line):
    found, is_local = {}, line.scope is not None
    if line.intra_depth == 1 and timm_models.missing() is None:
        layer = importlib.import_module("timm.layers.lambda_layer").LambdaLayer
        found["timm conv" if is_local else "timm table"] = layer(
            line.filters,
            num_heads=line.num_heads,
            dim_head=line.key_dim,
            r=line.scope,
            feat_size=None if is_local else line.grid,
        )
    is_there = importlib.util.find_spec("lambda_networks") is not None
    if is_there and (is_local or line.grid[0] == line.grid[1]):
        layer = importlib.import_module("lambda_networks").LambdaLayer
        found["lucidrains"] = layer(
            dim=line.filters,
            dim_out=line.filters,
            dim_k=line.key_dim,
            heads=line.num_heads,
            dim_u=line.intra_depth,
            r=line.scope,
            n=None if is_local else line.grid[0],
        )
    return found
