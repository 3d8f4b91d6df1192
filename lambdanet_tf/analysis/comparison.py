"""What a network costs before and after layers were replaced."""

import dataclasses

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.analysis.layer_flops import Costs
from lambdanet_tf.analysis.layer_flops import LayerCount
from lambdanet_tf.analysis.layer_flops import layer_costs
from lambdanet_tf.analysis.model_costs import aligned_columns
from lambdanet_tf.analysis.model_costs import check_one_map
from lambdanet_tf.analysis.model_costs import layer_count
from lambdanet_tf.analysis.model_costs import trainable_parameters
from lambdanet_tf.analysis.traced_flops import executed_flops
from lambdanet_tf.models.graph import calls_of
from lambdanet_tf.models.graph import is_graph


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two networks, one of which was made of the other, for one image.

    Attributes:
        name: of the first network.
        image_shape: of its input, without the batch.
        removed: a `LayerCount` for each layer that only the first has, also
            in models inside it, whose names come before the layer's.
        added: likewise, of layers that only the second has.
        parameters: trainable ones, before and after.
        executed_flops: operations of the products that TensorFlow executes,
            before and after; 0 where not traced.

    Examples:
        >>> model = tf.keras.Sequential(
        ...     [
        ...         tf.keras.Input((8, 8, 3)),
        ...         tf.keras.layers.Conv2D(16, 3, name="conv"),
        ...     ]
        ... )
        >>> new = models.replace_layers(model, models.convolution_rule())
        >>> counted = analysis.compare(model, new, executed=False)
        >>> [layer.name for layer in counted.removed]
        ['conv']
    """

    name: str
    image_shape: tuple[int, ...]
    removed: tuple[LayerCount, ...]
    added: tuple[LayerCount, ...]
    parameters: tuple[int, int]
    executed_flops: tuple[int, int]

    def replaced(self) -> list[tuple]:
        """Returns pairs: a layer that went, those that came in its place.

        A layer came in the place of another if its name begins with the
        other's, as those of the ready rules do; other new layers come in a
        pair of their own, with None.

        Returns:
            A list of pairs: a `LayerCount` or None, and a tuple of them.
        """
        rest, pairs = list(self.added), []
        for old in self.removed:
            own = [x for x in rest if x.name.startswith(f"{old.name}_")]
            own += [x for x in rest if x.name == old.name]
            rest = [x for x in rest if x not in own]
            pairs.append((old, tuple(own)))
        return pairs + [(None, (new,)) for new in rest]

    def table(self) -> str:
        """Returns the comparison as text, a row per layer that went.

        Returns:
            A text of several lines.
        """
        rows = [
            _cells(old.name if old else new[0].name, [old] if old else [], new)
            for old, new in self.replaced()
        ]
        flops = [f"{count / 1e6:,.1f}" for count in self.executed_flops]
        counts = [f"{count:,}" for count in self.parameters]
        rows.append(("whole network", "", "", "", *counts, *flops))
        lines = aligned_columns([_HEADER, *rows])
        lines.insert(1, "-" * len(lines[0]))
        lines.insert(-1, "-" * len(lines[0]))
        size = "x".join(map(str, self.image_shape))
        return "\n".join(
            [f"{self.name} at {size}, per image, before and after", "", *lines]
        )


def compare(
    before: tf.keras.Model, after: tf.keras.Model, executed: bool = True
) -> Comparison:
    """Counts what replaced layers, and the networks around them, cost.

    Args:
        before: a functional Keras model with one input of known sizes.
        after: one made of it, by `lambdanet_tf.models.replace_layers`: layers
            that both have are known by name and class.
        executed: whether to trace both networks, which takes seconds; the
            operations of the whole are 0 otherwise.

    Returns:
        A `Comparison`. Operations of single layers are those of the paper's
        convention, 0 for layers that are not known; of the whole network, those
        that TensorFlow executes.

    Raises:
        ValueError: if a network is no graph, or has several inputs or one of
            unknown sizes.

    Examples:
        >>> model = tf.keras.Sequential(
        ...     [
        ...         tf.keras.Input((8, 8, 3)),
        ...         tf.keras.layers.Conv2D(16, 3, name="conv"),
        ...     ]
        ... )
        >>> new = models.replace_layers(model, models.convolution_rule())
        >>> compare(model, new, executed=False).parameters[0]
        448
    """
    for model in (before, after):
        check_one_map(model)
    batch, *image_shape = before.inputs[0].shape
    if None in image_shape:
        raise ValueError(
            "Both models must have inputs of known sizes. Received: "
            f"{tuple(before.inputs[0].shape)}."
        )
    old, new = _layers(before), _layers(after)
    flops = 0, 0
    if executed:
        shape = (batch or ops.TYPICAL_BATCH, *image_shape)
        flops = _flops_of_image(before, shape), _flops_of_image(after, shape)
    return Comparison(
        name=before.name,
        image_shape=tuple(image_shape),
        removed=_only_in(old, new),
        added=_only_in(new, old),
        parameters=(trainable_parameters(before), trainable_parameters(after)),
        executed_flops=flops,
    )


def _flops_of_image(model, shape):
    return sum(executed_flops(model, shape).values()) // shape[0]


def _layers(model, prefix=""):
    """Every layer by name and class, also of models inside, and its call."""
    found, calls = {}, calls_of(model)
    for layer in model.layers:
        name = f"{prefix}{layer.name}"
        if is_graph(layer):
            found |= _layers(layer, f"{name}/")
        elif not isinstance(layer, tf.keras.layers.InputLayer):
            found[name, type(layer)] = layer, calls[id(layer)][0]
    return found


def _only_in(layers, others):
    """The rows of the layers that the other network does not have."""
    return tuple(
        dataclasses.replace(_row(*called), name=name)
        for (name, kind), called in layers.items()
        if (name, kind) not in others
    )


def _row(layer, call):
    costs = layer_costs(layer, call) or Costs(0)
    return layer_count(layer, call, costs, layer.trainable_weights, 0)


_HEADER = (
    *("layer", "before", "after", "output", "parameters", "after"),
    *("MFLOPs", "after"),
)


def _cells(name, old, new):
    """A row: what went and what came, their parameters and operations."""
    shape = "x".join(map(str, (old or new)[0].output_shape))
    sides = list(old), list(new)
    kinds = [" ".join(x.kind for x in side) for side in sides]
    parameters = [f"{sum(x.parameters for x in s):,}" for s in sides]
    flops = [f"{sum(x.flops for x in s) / 1e6:,.1f}" for s in sides]
    return (name, *kinds, shape, *parameters, *flops)
