"""Networks of others with other layers put into them, by a rule."""

import collections
import dataclasses
import inspect
import sys
import warnings
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.models.cloning import check_functional
from lambdanet_tf.models.cloning import config_with_table
from lambdanet_tf.models.cloning import copy_vocabularies
from lambdanet_tf.models.cloning import copying
from lambdanet_tf.models.graph import arguments_of
from lambdanet_tf.models.graph import graph_of
from lambdanet_tf.models.graph import is_graph
from lambdanet_tf.models.graph import named_arguments
from lambdanet_tf.models.graph import nodes
from lambdanet_tf.models.graph import operation_of
from lambdanet_tf.models.graph import symbolic
from lambdanet_tf.models.weight_names import copy_weights

_LAMBDA_LAYERS = (LambdaLayer, LambdaConv)
_NORMALIZATIONS = (
    tf.keras.layers.BatchNormalization,
    tf.keras.layers.LayerNormalization,
)
_BASE = vars(sys.modules[tf.keras.layers.Layer.__module__])
# The layers that `add_loss` and `add_metric` of a model make in Keras 2.
_ADDED = tuple(_BASE[x] for x in ("AddLoss", "AddMetric") if x in _BASE)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a layer stands in a network.

    Attributes:
        name: of the layer, behind those of the models that it is in, as in
            "backbone/conv4_block1_2_conv".
        input_shape: of the first tensor that it is called with.
        output_shape: of what it returns, if that is one tensor; else None.
        arguments: of its call by name, the first one first. Tensors are
            symbolic.
        followers: the layers that read what it returns.
        is_output: whether the network, or the model that it is in, returns it.

    Examples:
        >>> def rule(layer, place):
        ...     is_last = place.name == "stage4_block1_conv1"
        ...     return print(place.output_shape) if is_last else None
        >>> model = replace_layers(models.LambdaResNetSmall(), rule)
        (None, 4, 4, 128)
    """

    name: str
    input_shape: tuple[int | None, ...]
    output_shape: tuple[int | None, ...] | None
    arguments: dict[str, Any]
    followers: tuple[Any, ...]
    is_output: bool


Rule = Callable[[Any, Place], Any]


def replace_layers(
    model: tf.keras.Model, rule: Rule | Sequence[Rule]
) -> tf.keras.Model:
    """Puts layers into a network in the place of others.

    All that a rule leaves is copied with its weights, and so are losses and
    metrics that were added to the network; the network itself stays as it is.
    Models inside the network are rebuilt likewise. Layers inside other layers,
    as of `TimeDistributed` or a subclassed model, are left.
    What was replaced, with parameters and operations, shows
    `lambdanet_tf.analysis.compare(model, new_model)`.

    Args:
        model: any functional Keras model, or a Sequential with inputs.
        rule: function of a layer and its `Place`, that returns None to leave
            the layer, or what comes in its place: a new layer, or a list of
            layers that are called one after the other. The first is called
            with the first argument of the layer that goes and all others that
            its own `call` has by the same name. Of several rules the first
            counts that returns something. `convolution_rule` and
            `attention_rule` make rules.

    Returns:
        A functional model, not compiled, with inputs and outputs as before.

    Raises:
        ValueError: if the network is no graph, or a rule no function; if a
            rule returns something else, or layers that change the shape of the
            output; if a layer cannot go because it is called several times, or
            with tensors that the new one does not take; if a layer cannot be
            copied.

    Examples:
        >>> model = tf.keras.Sequential(
        ...     [
        ...         tf.keras.Input((8, 8, 3)),
        ...         tf.keras.layers.Conv2D(16, 3, padding="same"),
        ...     ]
        ... )
        >>> new_model = replace_layers(model, models.convolution_rule(scope=7))
        >>> type(new_model.layers[1]).__name__
        'LambdaLayer'
    """
    check_functional(model)
    rules = tuple(rule) if isinstance(rule, Sequence) else (rule,)
    if not all(map(callable, rules)):
        raise ValueError(
            "`rule` must be a function of a layer and its place, or a sequence "
            f"of such functions. Received: rule={rule!r}."
        )
    replacing = _Replacing(rules, _counted_calls(model))
    new_model = replacing.rebuilt(model, "")
    replacing.copy_weights()
    if replacing.successions:
        pairs = ", ".join(f"{a!r} and {b!r}" for a, b in replacing.successions)
        warnings.warn(
            "Two lambda layers in direct succession train badly; keep what "
            f"mixes neighbors between them, such as a convolution: {pairs}.",
            stacklevel=2,
        )
    return new_model


class _Replacing:
    """One pass of rules through a network and the models inside.

    Attributes:
        successions: pairs of names of lambda layers without anything between
            them that mixes positions, of which one is new.
    """

    def __init__(self, rules, calls):
        self._rules, self._calls = rules, calls
        self._tables = {}  # copies of those that layers share, by id
        self._copies = {}  # by id of the layer: (layer, its copy)
        self._new = {}  # by id, of layers that rules returned
        self._nodes = set()  # ids of the calls of the network
        self._outputs = set()  # ids of what it and the models inside return
        self._sources = {}  # by id of a tensor: the lambda layer it comes from
        self.successions = []

    def rebuilt(self, model, prefix):
        """The model with other layers; `prefix` is of the names inside."""
        graph = graph_of(model)
        tensors = {}
        self._nodes.update(map(id, nodes(graph)))
        self._outputs.update(map(id, tf.nest.flatten(graph.output)))

        def new_input(x):
            layer = _layer_of(x)
            tensors[id(x)] = type(layer).from_config(layer.get_config()).output
            return tensors[id(x)]

        def new(x):
            return tensors.get(id(x), x)

        inputs = tf.nest.map_structure(new_input, graph.input)
        for node in nodes(graph):
            if isinstance(operation_of(node), _ADDED):
                continue
            args, kwargs = tf.nest.map_structure(new, arguments_of(node))
            outputs = self._call(node, args, kwargs, prefix)
            pairs = zip(
                tf.nest.flatten(node.outputs),
                tf.nest.flatten(outputs),
                strict=True,
            )
            tensors.update({id(old): x for old, x in pairs})
        outputs = tf.nest.map_structure(new, graph.output)
        copy = tf.keras.Model(inputs, outputs, name=model.name)
        for layer in (x for x in graph.layers if isinstance(x, _ADDED)):
            x = new(layer.input)
            if hasattr(layer, "metric_name"):
                how = {"aggregation": layer.aggregation}
                copy.add_metric(x, name=layer.metric_name, **how)
            else:
                copy.add_loss(x)
        copy._trainable = model.trainable  # Its own; the layers have theirs.
        return copy

    def _call(self, node, args, kwargs, prefix):
        """Calls what comes in the place of a layer, or its copy."""
        layer = operation_of(node)
        if id(layer) not in self._copies and is_graph(layer):
            copy = self.rebuilt(layer, f"{prefix}{layer.name}/")
            self._copies[id(layer)] = layer, copy
        if id(layer) not in self._copies:
            place = self._place(node, args, kwargs, prefix)
            if layers := self._replacement(layer, place):
                return self._call_new(layers, layer, place)
            self._copies[id(layer)] = layer, self._copy(layer, place)
        _, copy = self._copies[id(layer)]
        outputs = copy(*args, **kwargs)
        self._note_source(copy, (args, kwargs), outputs)
        return outputs

    def _place(self, node, args, kwargs, prefix):
        """The `Place` of a layer that is called with the new tensors."""
        layer = operation_of(node)
        arguments = dict(enumerate(args)) | kwargs
        kwargs = {k: kwargs[k] for k in kwargs.keys() - _passed_masks(node)}
        if isinstance(layer, tf.keras.layers.Layer):
            arguments = named_arguments(layer, args, kwargs)
        tensors = symbolic((args, kwargs))
        outputs = tf.nest.flatten(node.outputs)
        return Place(
            name=prefix + layer.name,
            input_shape=tuple(tensors[0].shape),
            output_shape=tuple(outputs[0].shape) if len(outputs) == 1 else None,
            arguments=arguments,
            # Other networks may have the layer, too.
            followers=tuple(
                operation_of(after)
                for after in layer._outbound_nodes
                if id(after) in self._nodes
            ),
            is_output=any(id(x) in self._outputs for x in outputs),
        )

    def _replacement(self, layer, place):
        """The list of layers that rules return; None to keep the layer."""
        if not isinstance(layer, tf.keras.layers.Layer):
            return None  # an operation of the graph
        for rule in self._rules:
            given = rule(layer, place)
            if given is None or given is layer:
                continue
            layers = (
                list(given) if isinstance(given, (list, tuple)) else [given]
            )
            for new in layers:
                if not isinstance(new, tf.keras.layers.Layer):
                    raise ValueError(
                        "A `rule` must return None, a layer of `tf.keras` or a "
                        f"list of them. Received for {place.name!r}: {new!r}."
                    )
                if id(new) in self._new or new is layer:
                    raise ValueError(
                        "A `rule` must return a new layer each time. Received "
                        f"for {place.name!r}: {new.name!r}, which is in the "
                        "network already."
                    )
            if self._calls[id(layer)] > 1:
                raise ValueError(
                    f"Layer {place.name!r} cannot be replaced: it is shared, "
                    f"called {self._calls[id(layer)]} times. Leave it with a "
                    "rule that returns None for it (`names` of a ready one), "
                    "or build the network with a layer for each call."
                )
            self._new.update({id(new): new for new in layers})
            return layers
        return None

    def _call_new(self, layers, layer, place):
        """Calls new layers with what the layer was called with."""
        kinds = ", ".join(type(new).__name__ for new in layers)
        why = f"Layer {place.name!r} cannot be replaced by {kinds}"
        first, *others = place.arguments.items()
        takes = inspect.signature(layers[0].call).parameters
        kept = {
            name: value
            for name, value in others
            if name in takes and value is not None
        }
        for name, value in others:
            foreign = any(x is not first[1] for x in symbolic(value))
            if name not in kept and foreign:
                raise ValueError(
                    f"{why}: it is called with `{name}`, which a "
                    f"{type(layers[0]).__name__} does not take. Leave it with "
                    "a rule that returns None for it."
                )
        outputs = first[1]
        for new in layers:
            before = outputs
            try:
                outputs = new(outputs, **kept)
            except ValueError as error:
                raise ValueError(f"{why}: {error}") from error
            self._note_source(new, before, outputs)
            kept = {}
        shape = getattr(outputs, "shape", None)
        if shape is None or tuple(shape) != place.output_shape:
            raise ValueError(
                f"{why}: the output shape would be "
                f"{shape and tuple(shape)} and must stay {place.output_shape}. "
                "Give the new layer the same `filters`, `strides` and "
                "`padding`."
            )
        return outputs

    def _copy(self, layer, place):
        if isinstance(layer, tf.keras.layers.Lambda):
            return tf.keras.layers.Lambda(
                layer.function,
                layer._output_shape,
                mask=layer.mask,
                arguments=layer.arguments,
                name=layer.name,
                dtype=layer.dtype_policy,
            )
        with copying(layer, place.name):
            copy = type(layer).from_config(
                config_with_table(layer, self._tables)
            )
        copy_vocabularies(layer, copy)
        return copy

    def _note_source(self, layer, inputs, outputs):
        """Follows the outputs of lambda layers to what reads them first."""
        sources = {self._sources.get(id(x)) for x in symbolic(inputs)}
        source = sources.pop() if len(sources) == 1 else None
        if isinstance(layer, _LAMBDA_LAYERS):
            is_new = id(layer) in self._new or id(source) in self._new
            if source is not None and is_new:
                self.successions.append((source.name, layer.name))
            source = layer
        elif isinstance(layer, tf.keras.layers.Layer) and layer.weights:
            source = source if isinstance(layer, _NORMALIZATIONS) else None
        for x in tf.nest.flatten(outputs):
            self._sources[id(x)] = source

    def copy_weights(self):
        """Gives all copies the weights, and what is frozen inside."""
        for layer, copy in self._copies.values():
            if isinstance(layer, tf.keras.layers.Layer) and not is_graph(layer):
                copy_weights(layer, copy)


def _layer_of(tensor):
    """The layer that a symbolic input comes from."""
    return tensor._keras_history[0]


def _counted_calls(model, counts=None):
    """How often each layer is called, by id, also in models inside."""
    counts = collections.Counter() if counts is None else counts
    for node in nodes(graph_of(model)):
        layer = operation_of(node)
        if is_graph(layer) and not counts[id(layer)]:
            _counted_calls(layer, counts)
        counts[id(layer)] += 1
    return counts


def _passed_masks(node):
    """The arguments of a call that are masks which came with its tensors.

    Keras 3 adds them to a call; they come with the new tensors as well.
    """
    args, kwargs = arguments_of(node)
    masks = [getattr(x, "_keras_mask", None) for x in symbolic(args)]
    return [
        name
        for name, value in kwargs.items()
        if value is not None and any(value is mask for mask in masks)
    ]
