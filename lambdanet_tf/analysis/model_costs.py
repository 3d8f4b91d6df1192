"""What a whole model costs: a row per layer, sums, and a table to print."""

import collections
import dataclasses
import math
from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.analysis.layer_flops import Costs
from lambdanet_tf.analysis.layer_flops import LayerCount
from lambdanet_tf.analysis.layer_flops import algorithm
from lambdanet_tf.analysis.layer_flops import layer_costs
from lambdanet_tf.analysis.layer_flops import state_bytes
from lambdanet_tf.analysis.traced_flops import executed_flops
from lambdanet_tf.arguments import int_per_axis
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.models import check_functional
from lambdanet_tf.models import clone_network
from lambdanet_tf.models.blocks import MIDDLES
from lambdanet_tf.models.graph import calls_of
from lambdanet_tf.specs import LETTERS


@dataclasses.dataclass(frozen=True)
class Analysis:
    """The costs of a model for one image of a batch.

    Attributes:
        name: of the model.
        image_shape: (height, width, channels), of tokens (length,).
        layers: a `LayerCount` per layer, in order.
        not_counted: names of layers with weights whose operations are not
            known, and of layers of unknown sizes; they count 0 among `flops`,
            and outputs of unknown sizes 0 among the memory.
        counted_once: names of layers that are called several times; `flops`
            and memory are those of the first call.

    Examples:
        >>> costs = analysis.analyze(models.LambdaResNetSmall(), executed=False)
        >>> costs.total("parameters")
        568154
    """

    name: str
    image_shape: tuple[int, ...]
    layers: tuple[LayerCount, ...]
    not_counted: tuple[str, ...]
    counted_once: tuple[str, ...] = ()

    def total(self, field):
        """Adds up an attribute of `LayerCount` over all layers.

        Args:
            field: a name, such as "flops".

        Returns:
            A number.
        """
        return sum(getattr(layer, field) for layer in self.layers)

    def stages(self):
        """The layers of `stem`, `stage2` and so on as one row each."""
        groups = collections.defaultdict(list)
        for layer in self.layers:
            prefix = layer.name.split("_")[0]
            if not prefix.startswith("stage"):
                prefix = "head" if "stage2" in groups else "stem"
            groups[prefix].append(layer)
        rows = []
        for name, layers in groups.items():
            kinds = collections.Counter(_letter(layer) for layer in layers)
            kind = " ".join(f"{kinds[k]} {k}" for k in LETTERS if kinds[k])
            rows.append(_sum(layers, name, kind, layers[-1].output_shape))
        return rows

    def table(self, every_layer=False):
        """Returns the analysis as text, a row per stage or per layer.

        Args:
            every_layer: bool.

        Returns:
            A text of several lines.
        """
        rows = self.stages()
        if every_layer:
            rows = [r for r in self.layers if r.parameters or r.executed_flops]
        rows = [*rows, _sum(self.layers, "total")]
        header = (
            "layer",
            "",
            "output",
            *(heading for _, heading, *_ in _COLUMNS),
        )
        lines = aligned_columns([header, *map(_cells, rows)])
        lines.insert(1, "-" * len(lines[0]))
        lines.insert(-1, "-" * len(lines[0]))
        title = "x".join(map(str, self.image_shape))
        lines = [f"{self.name} at {title}, per image", "", *lines]
        if state := self.total("state_bytes"):
            lines += ["", f"state of a stream: {state:,} bytes, of any length"]
        for text, names in (
            ("not counted", self.not_counted),
            ("called several times, counted once", self.counted_once),
        ):
            if names:
                lines += ["", f"{text}: {', '.join(names)}"]
        return "\n".join(lines)


def analyze(model, image_size=None, executed=True, batch_size=None):
    """Counts what a model costs for one image.

    Args:
        model: a functional Keras model with one input, such as the builders
            of `lambdanet_tf.models` return.
        image_size: int or (height, width), of sequences the length; None for
            the size the model was built for. Another size is counted on a copy
            of the model, so that tables of global lambda layers are then of
            that size.
        executed: whether to trace the model, which takes seconds, and count
            `executed_flops`; they are 0 otherwise.
        batch_size: int. Images that are computed at once, which algorithms are
            chosen for, on a copy of the model; None for that of the model,
            which is unknown as a rule.

    Returns:
        An `Analysis`.

    Raises:
        ValueError: if the model takes images of any size and none is given, if
            it has no spatial axes and one is given, or if an argument is not
            as described.

    Examples:
        >>> counted = analyze(models.LambdaResNetSmall(), executed=False)
        >>> counted.total("parameters"), counted.total("flops")
        (568154, 14542848)
    """
    check_one_map(model)
    model = _of_size(model, image_size, batch_size)
    batch, *image_shape = model.inputs[0].shape
    if None in image_shape:
        raise ValueError(
            "`image_size` must be given for a model that takes images of any "
            "size. Received: image_size=None, a model of "
            f"{tuple(model.inputs[0].shape)}."
        )
    batch = batch or ops.TYPICAL_BATCH
    traced = executed_flops(model, (batch, *image_shape)) if executed else {}
    calls = calls_of(model)
    counted, layers, unknown = set(), [], []
    for layer in model.layers:
        call, *_ = calls[id(layer)]
        costs = layer_costs(layer, call)
        if costs is None:
            unknown.append(layer.name)
        weights = [w for w in layer.trainable_weights if id(w) not in counted]
        counted.update(map(id, weights))
        flops = traced.get(layer.name, 0) // batch
        costs = costs or Costs(0)
        layers.append(layer_count(layer, call, costs, weights, flops))
    again = [x.name for x in model.layers if len(calls[id(x)]) > 1]
    return Analysis(
        name=model.name,
        image_shape=tuple(image_shape),
        layers=tuple(layers),
        not_counted=tuple(unknown),
        counted_once=tuple(again),
    )


def check_one_map(model):
    """Raises a ValueError unless a graph has one input, a map or sequence."""
    check_functional(model)
    shape = tuple(model.inputs[0].shape)
    is_known = _is_of_tokens(model) or shape[-1:] != (None,)
    if len(model.inputs) != 1 or len(shape) < 2 or not is_known:
        raise ValueError(
            "`model` must have one input, images or sequences: (batch, "
            "*spatial, channels), or integers (batch, length). Received: "
            f"inputs of shapes {[tuple(x.shape) for x in model.inputs]}."
        )


def _is_of_tokens(model):
    """Whether the input of a model is of integers (batch, length)."""
    tokens = model.inputs[0]
    return len(tokens.shape) == 2 and tf.as_dtype(tokens.dtype).is_integer


def _of_size(model, image_size, batch_size):
    """The model, or a copy for other images or another batch."""
    built = model.inputs[0]
    batch, *size = built.shape
    channels = [] if _is_of_tokens(model) else [size.pop()]
    if batch_size is not None:
        batch = positive_int("batch_size", batch_size)
    if image_size is not None and not size:
        raise ValueError(
            "`image_size` must be None for a model without spatial axes. "
            f"Received: image_size={image_size}, a model of "
            f"{tuple(built.shape)}."
        )
    if image_size is not None:
        size = int_per_axis("image_size", image_size, len(size))
    shape = (*size, *channels)
    if (batch, *shape) == tuple(built.shape):
        return model
    images = tf.keras.Input(
        shape, batch_size=batch, name=built.name, dtype=built.dtype
    )
    return clone_network(model, input_tensors=images)


def layer_count(layer: Any, call, costs, weights, executed):
    """The row of a call of a layer, whose new weights are given."""
    outputs = tf.nest.flatten(call.outputs)
    shape = tuple(outputs[0].shape[1:]) if len(outputs) == 1 else ()
    numbers = 0 if None in shape else math.prod(shape)
    itemsize = tf.as_dtype(layer.compute_dtype).size
    return LayerCount(
        name=layer.name,
        kind=type(layer).__name__,
        output_shape=shape,
        parameters=_numbers(weights),
        flops=costs.flops,
        executed_flops=executed,
        activation_bytes=(numbers + costs.activations) * itemsize,
        embedding_bytes=costs.embeddings * itemsize,
        table_bytes=costs.table * itemsize,
        algorithm=algorithm(layer),
        state_bytes=state_bytes(layer),
    )


def trainable_parameters(model: tf.keras.Model) -> int:
    """Counts the trainable parameters of a model, as the paper does.

    Keras' `count_params` counts the statistics of batch normalization, too.

    Args:
        model: built.

    Returns:
        An int; weights that several layers share count once.

    Examples:
        >>> trainable_parameters(models.LambdaResNetSmall())
        568154
    """
    weights = {id(w): w for w in model.trainable_weights}
    return _numbers(weights.values())


def _numbers(weights):
    return sum(math.prod(weight.shape) for weight in weights)


def _letter(layer):
    """The letter of the block whose middle a layer is, or None."""
    *_, middle = layer.name.split("_", 2)  # stage2_block1_local_attention
    letters = {layer: letter for letter, (layer, _) in MIDDLES.items()}
    return letters.get(middle)


def _sum(layers, name, kind="", shape=()):
    """One row for several layers."""
    sums: dict[str, Any] = {
        field: sum(getattr(layer, field) for layer in layers)
        for field, *_ in _COLUMNS
    }
    return LayerCount(name, kind, shape, **sums)


# What is summed and shown: its heading, unit and decimals.
_COLUMNS = (
    ("parameters", "parameters", 1, 0),
    ("flops", "MFLOPs", 1e6, 1),
    ("executed_flops", "executed", 1e6, 1),
    ("activation_bytes", "activations MB", 1e6, 2),
    ("embedding_bytes", "embeddings MB", 1e6, 2),
    ("table_bytes", "table MB", 1e6, 2),
)


def _cells(row):
    return (
        row.name,
        f"{row.kind} {row.algorithm}".strip(),
        "x".join(map(str, row.output_shape)),
        *(
            f"{getattr(row, field) / unit:,.{decimals}f}"
            for field, _, unit, decimals in _COLUMNS
        ),
    )


def aligned_columns(rows):
    """Lines of text with columns of equal width, the first three left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
