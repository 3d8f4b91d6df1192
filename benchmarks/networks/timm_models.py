"""timm's networks, where torch and timm are installed (the extra `timm`)."""

import importlib.util
import sys


def missing():
    """What is not installed, as a reason to skip; None if all is there."""
    for name in ("torch", "timm"):
        if importlib.util.find_spec(name) is None:
            return f"needs the extra `timm`: {name} is not installed"
    return None


def torch_beside_tensorflow():
    """PyTorch without triton: with both of these a process dies."""
    sys.modules.setdefault("triton", None)
    return importlib.import_module("torch")


def build(spec, classes=1000, image_size=256):
    """timm's network of a `ResNetSpec` that it can express."""
    byobnet = importlib.import_module("timm.models.byobnet")
    kinds = {"C": "bottle", "L": "self_attn"}

    def block(letter, width, strides):
        channels, ratio = spec.expansion * width, 1 / spec.expansion
        return byobnet.ByoBlockCfg(
            type=kinds[letter], d=1, c=channels, s=strides, gs=0, br=ratio
        )

    rows = zip(spec.stages, spec.widths, spec.strides, strict=True)
    blocks = tuple(
        tuple(block(letter, *place) for letter in letters)
        for letters, *place in rows
    )
    scope = spec.scope if isinstance(spec.scope, int | None) else spec.scope[0]
    filters = spec.stem_filters
    configuration = byobnet.ByoModelCfg(
        blocks=blocks,
        downsample="avg" if spec.shortcut == "pool" else "conv1x1",
        stem_type="7x7" if spec.stem_kernel_size == 7 else "3x3",
        stem_chs=filters if len(filters) > 1 else filters[0],
        stem_pool="maxpool" if spec.stem_pool else "",
        act_layer=spec.activation,
        self_attn_layer="lambda",
        self_attn_kwargs={
            "r": scope,
            "num_heads": spec.num_heads,
            "dim_head": spec.key_dim,
        },
    )
    size = {} if scope else {"img_size": image_size}
    return byobnet.ByobNet(configuration, num_classes=classes, **size)


def published(timm_name, image_size=256):
    size = {"img_size": image_size} if "rpt" in timm_name else {}
    timm = importlib.import_module("timm")
    return timm.create_model(timm_name, pretrained=False, **size)
