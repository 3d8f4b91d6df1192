"""timm's networks, where torch and timm are installed (the extra `timm`).

timm imports torchvision, which these networks do not use and which has no
build for every machine: an empty stand-in takes its place where it is missing.
"""

import contextlib
import importlib.machinery
import importlib.util
import sys
import types

_TORCHVISION = (
    "torchvision",
    "torchvision.datasets",
    "torchvision.models",
    "torchvision.models.feature_extraction",
    "torchvision.ops",
    "torchvision.ops.misc",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "torchvision.utils",
)


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


def module(name):
    """A module of timm, such as `timm.models.byobnet`."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torchvision")
    if "torchvision" not in sys.modules:
        for part in _TORCHVISION:
            _stand_in(part)
    return importlib.import_module(name)


def _stand_in(name):
    """Puts an empty module in the place of one that is not there."""
    empty = types.ModuleType(name)
    empty.__path__ = []  # So that it may hold others.
    empty.__spec__ = importlib.machinery.ModuleSpec(name, None)
    empty.__getattr__ = _placeholder
    sys.modules[name] = empty
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, empty)


def _placeholder(name):
    """A class for any name that is imported; nobody here uses it."""
    if name.startswith("__"):
        raise AttributeError(name)
    modes = ("NEAREST", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS")
    return type(name, (), {mode: mode.lower() for mode in modes})


def build(spec, classes=1000, image_size=256):
    """timm's network of a row of `lambdanet_tf.specs` that it can express.

    Args:
        spec: `ResNetSpec`.
        classes: int.
        image_size: height and width, or both, which a global scope depends
            on.

    Returns:
        A `torch.nn.Module` of images `(batch, 3, height, width)` to logits.
    """
    byobnet = module("timm.models.byobnet")
    stages = []
    for letters, width, strides in zip(
        spec.stages, spec.widths, spec.strides, strict=True
    ):
        stages.append(
            tuple(
                byobnet.ByoBlockCfg(
                    type={"C": "bottle", "L": "self_attn"}[letter],
                    d=1,
                    c=spec.expansion * width,
                    s=strides,
                    gs=0,
                    br=1 / spec.expansion,
                )
                for letter in letters
            )
        )
    scope = spec.scope if isinstance(spec.scope, int | None) else spec.scope[0]
    filters = spec.stem_filters
    configuration = byobnet.ByoModelCfg(
        blocks=tuple(stages),
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
    """A network of timm by its name, with random weights."""
    size = {"img_size": image_size} if "rpt" in timm_name else {}
    return module("timm").create_model(timm_name, pretrained=False, **size)
