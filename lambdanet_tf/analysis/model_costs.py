"""The cost of a whole model: a row per layer, sums, and a table to print."""

import collections
import dataclasses
import math

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.analysis.calls import all_calls
from lambdanet_tf.analysis.layer_flops import Costs
from lambdanet_tf.analysis.layer_flops import LayerCount
from lambdanet_tf.analysis.layer_flops import call_costs
from lambdanet_tf.analysis.traced_flops import executed_flops
from lambdanet_tf.arguments import int_per_axis
from lambdanet_tf.models import check_functional
from lambdanet_tf.models import clone_network
from lambdanet_tf.models.blocks import MIDDLES


@dataclasses.dataclass(frozen=True)
class Analysis:
    """The costs of a model for one image of a batch.

    Attributes:
        name: the model's name.
        image_shape: (height, width, channels), or (length,) for tokens.
        layers: a `LayerCount` per call, also in nested models.
        not_counted: names of layers that count 0, because they have matrices
            but no formula, or unknown sizes.

    Examples:
        >>> costs = analysis.analyze(models.LambdaResNetSmall(), executed=False)
        >>> costs.total("parameters")
        568154
    """

    name: str
    image_shape: tuple[int, ...]
    layers: tuple[LayerCount, ...]
    not_counted: tuple[str, ...]

    def total(self, field):
        """Returns the sum of an attribute of `LayerCount`, such as "flops"."""
        return sum(getattr(layer, field) for layer in self.layers)

    def table(self, every_layer=False):
        """Returns the analysis as text, with a row per stage or per layer."""
        groups = _stages(self.layers)
        if every_layer:
            groups = [
                (x.name, f"{x.kind} {x.algorithm}", [x])
                for x in self.layers
                if x.parameters or x.executed_flops
            ]
        rows = [_cells(*group) for group in groups]
        cells = [_HEADER, *rows, _cells("total", "", self.layers)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)) for row in cells]
        lines.insert(1, "-" * len(lines[0]))
        lines.insert(-1, "-" * len(lines[0]))
        title = "x".join(map(str, self.image_shape))
        lines = [f"{self.name} at {title}, per image", "", *lines]
        if self.not_counted:
            lines += ["", f"not counted: {', '.join(self.not_counted)}"]
        return "\n".join(lines)


_HEADER = (
    *("layer", "", "output", "  parameters"),
    *("    MFLOPs", "  executed", "activations MB"),
)


def _cells(name, kind, layers):
    """Returns the texts of a row: sums over layers."""
    fields = ("parameters", "flops", "executed_flops", "activation_bytes")
    sums = [sum(getattr(x, field) for x in layers) for field in fields]
    return (
        name,
        kind,
        "x".join(map(str, layers[-1].output_shape)),
        f"{sums[0]:12,}",
        *(f"{number / 1e6:10,.1f}" for number in sums[1:3]),
        f"{sums[3] / 1e6:14,.2f}",
    )


def _stages(layers):
    """Yields names, blocks and layers of `stem`, `stage2` and so on."""
    groups = collections.defaultdict(list)
    for layer in layers:
        prefix = layer.name.split("/")[-1].split("_")[0]
        if not prefix.startswith("stage"):
            prefix = "head" if "stage2" in groups else "stem"
        groups[prefix].append(layer)
    letters = {middle: letter for letter, (middle, _) in MIDDLES.items()}
    for name, parts in groups.items():
        # stage2_block1_local_attention
        middles = [part.name.split("_", 2)[-1] for part in parts]
        blocks = [letters[x] for x in middles if x in letters]
        kinds = collections.Counter(blocks)
        text = " ".join(f"{count} {kind}" for kind, count in kinds.items())
        yield name, text, parts


def analyze(model, image_size=None, executed=True):
    """Counts what a model costs for one image.

    Args:
        model: a functional Keras model with one input, for example from a
            builder of `lambdanet_tf.models`.
        image_size: int or (height, width), or the length of sequences. None
            for the size that the model was built for. Another size is counted
            on a copy of the model, so that tables of global lambda layers have
            that size.
        executed: whether to trace the model, which takes seconds, and count
            `executed_flops`; otherwise they are 0.

    Raises:
        ValueError: if the model takes images of any size, and `image_size` is
            None.
    """
    check_functional(model)
    model = _of_size(model, image_size)
    batch, *image_shape = model.inputs[0].shape
    if None in image_shape:
        raise ValueError(
            "`image_size` must be set, because the model takes images of any "
            "size. Received: image_size=None, a model with inputs of shape "
            f"{tuple(model.inputs[0].shape)}."
        )
    batch = batch or ops.TYPICAL_BATCH
    traced = {}
    if executed:
        traced = executed_flops(model, (batch, *image_shape))
    counted, layers, unknown = set(), [], []
    for name, layer, node in all_calls(model):
        costs = call_costs(layer, node)
        if costs is None:
            unknown.append(name)
        weights = [w for w in layer.trainable_weights if id(w) not in counted]
        counted.update(map(id, weights))
        flops = traced.pop(layer.name, 0) // batch
        layers.append(
            _row(name, layer, node, costs or Costs(0), weights, flops)
        )
    return Analysis(
        name=model.name,
        image_shape=tuple(image_shape),
        layers=tuple(layers),
        not_counted=tuple(unknown),
    )


def _of_size(model, image_size):
    """Returns the model, or a copy for inputs of another size."""
    built = model.inputs[0]
    if image_size is None:
        return model
    # Tokens have no channels.
    channels = [] if tf.as_dtype(built.dtype).is_integer else [built.shape[-1]]
    axes = len(built.shape) - 1 - len(channels)
    shape = (*int_per_axis("image_size", image_size, axes), *channels)
    if shape == tuple(built.shape[1:]):
        return model
    inputs = tf.keras.Input(shape, name=built.name, dtype=built.dtype)
    return clone_network(model, input_tensors=inputs)


def _row(name, layer, node, costs, weights, executed):
    """Returns the row of a call, given the weights not yet counted."""
    outputs = tf.nest.flatten(node.outputs)
    shape = tuple(outputs[0].shape[1:]) if len(outputs) == 1 else ()
    numbers = 0 if None in shape else math.prod(shape)
    plan = getattr(layer, "inference_plan", None)
    return LayerCount(
        name=name,
        kind=type(layer).__name__,
        output_shape=shape,
        parameters=_numbers(weights),
        flops=2 * costs.products,
        executed_flops=executed,
        activation_bytes=(numbers + costs.activations)
        * tf.as_dtype(layer.compute_dtype).size,
        algorithm=plan.algorithm if plan else "",
    )


def trainable_parameters(model: tf.keras.Model) -> int:
    """Counts the trainable parameters of a model, as the paper does."""
    return _numbers(model.trainable_weights)


def _numbers(weights):
    return sum(math.prod(weight.shape) for weight in weights)
