"""A model that is called piece by piece: its states, and one step."""

import re
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers.base import not_converted
from lambdanet_tf.layers.streaming import check_state
from lambdanet_tf.models import check_functional
from lambdanet_tf.models.graph import is_graph
from lambdanet_tf.streaming import rules
from lambdanet_tf.streaming.convolution import ConvolutionStep
from lambdanet_tf.streaming.graph import Value
from lambdanet_tf.streaming.graph import graph_of
from lambdanet_tf.streaming.graph import replaced

State = dict[str, tf.Tensor]


def state_spec(
    model: tf.keras.Model, batch_size: int | None = None
) -> dict[str, tf.TensorSpec]:
    """Returns the shapes and dtypes of a model's state, for a signature.

    Args:
        model: functional or Sequential, with one input and one output, of
            layers that see no later position: causal `LambdaLayer`,
            `LambdaConv` and `RelativeAttention`, causal `Conv1D`, layers that
            compute each position from that position alone, and models of
            these.
        batch_size: int, or None if it varies.

    Returns:
        From name to specification. A name is that of a layer, an underscore,
        and the name that the layer has for that part of its state. A size is
        None where the state grows with what was seen: in global attention.

    Raises:
        ValueError: if the model has another form, or a layer sees later
            positions or is not known to see none; it names the layer.

    Examples:
        >>> inputs = tf.keras.Input((None, 8))
        >>> outputs = LambdaLayer(8, scope=5, causal=True, name="mix")(inputs)
        >>> model = tf.keras.Model(inputs, outputs)
        >>> state_spec(model)["mix_values"].shape
        TensorShape([...])
    """
    return stream_of(model).state_spec(batch_size)


@not_converted
def initial_state(model: tf.keras.Model, batch_size: int | tf.Tensor) -> State:
    """Creates the state of sequences of which nothing was seen yet.

    Args:
        model: as for `state_spec`.
        batch_size: int or scalar tensor. Number of sequences.

    Returns:
        A flat dictionary of tensors for `step`, batch first.

    Raises:
        ValueError: as `state_spec`; if `batch_size` is no integer of 0 or more.

    Examples:
        >>> inputs = tf.keras.Input((None, 8))
        >>> outputs = LambdaLayer(8, scope=5, causal=True, name="mix")(inputs)
        >>> model = tf.keras.Model(inputs, outputs)
        >>> state = initial_state(model, batch_size=2)
        >>> {int(part.shape[0]) for part in state.values()}
        {2}
    """
    return stream_of(model).initial_state(batch_size)


@not_converted
def step(
    model: tf.keras.Model, inputs: tf.Tensor, state: State
) -> tuple[tf.Tensor, State]:
    """Computes the outputs of the next positions, in inference.

    Equal to the outputs that a call of the model on the whole sequence has at
    these positions, to rounding, however the sequence is cut. To compile it:
    `tf.function(lambda inputs, state: streaming.step(model, inputs, state))`.

    Args:
        model: as for `state_spec`.
        inputs: `(batch, n)` tokens or `(batch, n, channels)`: one or several
            new positions.
        state: of the positions before, from `initial_state` or a step.

    Returns:
        `(batch, n, ...)`, and the next state.

    Raises:
        ValueError: as `state_spec`, or if the state or a shape does not fit.

    Examples:
        >>> inputs = tf.keras.Input((None, 8))
        >>> outputs = LambdaLayer(8, scope=5, causal=True)(inputs)
        >>> model = tf.keras.Model(inputs, outputs)
        >>> state = initial_state(model, 1)
        >>> outputs, state = step(model, tf.zeros([1, 3, 8]), state)
        >>> outputs.shape
        TensorShape([1, 3, 8])
    """
    return stream_of(model).step(inputs, state)


class Stream:
    """How a model streams; a layer with a state, for a model around it.

    Args:
        model: as for `state_spec`.

    Attributes:
        input: the tensor of Keras that the model was built on.
        generators: the compiled loops of `generate`, by their options.

    Raises:
        ValueError: see there.
    """

    def __init__(self, model: tf.keras.Model):
        self._name = model.name
        self.generators = {}
        steppers = {}
        for layer in model.layers:
            if is_graph(layer) and not rules.has_state(layer):
                steppers[layer.name] = Stream(layer)
            else:
                steppers[layer.name] = rules.stepper_of(layer)
        self._graph = graph_of(model)
        self.input = self._graph.input
        for call in self._graph.calls:
            if call.layer.name not in steppers:  # an operation of Keras 3
                steppers[call.layer.name] = rules.stepper_of(call.layer)
        self._steppers = steppers
        self._check_calls()
        self._prefixes = {
            value: _identifier(value) + "_" for value, _ in self._with_state()
        }
        self.state_spec()  # Raises an error where names are not different.

    def state_spec(
        self, batch_size: int | None = None
    ) -> dict[str, tf.TensorSpec]:
        """As `state_spec` of a model."""
        spec = {}
        for value, stepper in self._with_state():
            for name, part in stepper.state_spec(batch_size).items():
                name = self._prefixes[value] + name
                if name in spec:
                    raise ValueError(
                        f"Model {self._name!r} cannot stream: two of its "
                        f"states would be called {name!r}. Give its layers "
                        "names that differ in letters and digits."
                    )
                spec[name] = tf.TensorSpec(part.shape, part.dtype, name)
        return spec

    def initial_state(self, batch_size: int | tf.Tensor) -> State:
        """As `initial_state` of a model."""
        return {
            self._prefixes[value] + name: part
            for value, stepper in self._with_state()
            for name, part in stepper.initial_state(batch_size).items()
        }

    def step(
        self,
        inputs: Any,
        state: State,
        mask: tf.Tensor | None = None,
        is_padded: bool = False,
    ) -> tuple[tf.Tensor, State]:
        """As `step` of a model.

        Args:
            inputs: see there.
            state: see there.
            mask: None or boolean `(batch, n)`; False = padding.
            is_padded: whether a layer that would read padding is an error.
        """
        inputs = self._checked(inputs, state)
        if mask is not None:
            inputs = tf.identity(inputs)
            inputs._keras_mask = mask
        values, after = {self._graph.start: inputs}, {}
        for call in self._graph.calls:
            args = replaced(call.args, values)
            kwargs = replaced(call.kwargs, values)
            stepper = self._steppers[call.layer.name]
            if stepper is not None:
                prefix = self._prefixes[call.value]
                own = {
                    name: state[prefix + name] for name in stepper.state_spec()
                }
                mask = kwargs.get("mask")
                output, own = _step(
                    call.layer, stepper, args[0], own, mask, is_padded
                )
                after |= {prefix + name: part for name, part in own.items()}
            elif rules.is_identity(call.layer):
                output = _cast(args[0], call.layer.compute_dtype)
            else:
                if rules.is_norm(call.layer):
                    kwargs["training"] = False
                if isinstance(args[0], float) and not KERAS_3:
                    # Its configuration does not say of which type.
                    args[0] = tf.cast(args[0], values[call.first].dtype)
                output = call.layer(*args, **kwargs)
            values[call.value] = output
        return values[self._graph.end], after

    @property
    def last_layer(self) -> Any:
        """The layer whose outputs the model's are, in inference.

        None if the model changes nothing but the dtype of its inputs.
        """
        calls = {call.value: call for call in self._graph.calls}
        value = self._graph.end
        while value != self._graph.start:
            layer = calls[value].layer
            stepper = self._steppers[layer.name]
            if isinstance(stepper, Stream):
                layer = stepper.last_layer
            if layer is not None and not rules.keeps_values(layer):
                return layer
            value = calls[value].first
        return None

    @property
    def has_padding(self) -> bool:
        """Whether token 0 is padding."""
        layers = [call.layer for call in self._graph.calls]
        return any(
            getattr(x, "mask_zero", False) or getattr(x, "has_padding", False)
            for x in (*layers, *self._steppers.values())
        )

    @property
    def vocabulary(self) -> int | None:
        """How many tokens the model embeds; None if that is not known."""
        sizes = [
            call.layer.input_dim
            for call in self._graph.calls
            if type(call.layer) is tf.keras.layers.Embedding
            and call.first == self._graph.start
        ]
        return min(sizes, default=None)

    def _with_state(self) -> Iterator[tuple[Value, Any]]:
        """Every call of a layer with a state, and what steps in its place."""
        for call in self._graph.calls:
            stepper = self._steppers[call.layer.name]
            if stepper is not None:
                yield call.value, stepper

    def _check_calls(self):
        """Raises a ValueError for a call that reads other positions."""
        ranks = {self._graph.start: len(self.input.shape)}
        if ranks[self._graph.start] not in (2, 3):
            raise ValueError(
                f"Model {self._name!r} cannot stream: its inputs have the "
                f"shape {tuple(self.input.shape)}. Streams are sequences, "
                "(batch, positions) of tokens or (batch, positions, channels)."
            )
        for call in self._graph.calls:
            layer, stepper = call.layer, self._steppers[call.layer.name]
            if call.kwargs.get("training"):
                raise rules.refusal(
                    layer,
                    "it is called with training=True, and streams are of "
                    "inference.",
                )
            if not call.inputs:
                raise rules.refusal(
                    layer, "it is called on no tensor of the model."
                )
            if any(np.ndim(x) or isinstance(x, dict) for x in call.constants):
                raise rules.refusal(
                    layer,
                    "it is given an array of numbers, which may differ by "
                    "position. Make it a layer.",
                )
            if stepper is None:
                of_inputs = [ranks[value] for value in call.inputs]
                ranks[call.value] = rules.rank_of_output(layer, of_inputs)
                continue
            others = {
                **{f"argument {i}": x for i, x in enumerate(call.args[1:], 2)},
                **call.kwargs,
            }
            others = [
                name
                for name, x in others.items()
                if x is not None and name not in ("mask", "training")
            ]
            if others or not isinstance(call.args[0], Value):
                raise rules.refusal(
                    layer,
                    f"it is called with {' and '.join(others)}, which a step "
                    "does not take. Call it on its inputs alone.",
                )
            ranks[call.value] = 3

    def _checked(self, inputs, state):
        """The inputs as the model takes them."""
        shape = self.input.shape
        inputs = tf.cast(tf.convert_to_tensor(inputs), self.input.dtype)
        wanted = tf.TensorShape([None, None, *shape[2:]])
        if not wanted.is_compatible_with(inputs.shape) or 0 in inputs.shape[1:]:
            raise ValueError(
                "`inputs` must have the shape (batch, new positions"
                f"{''.join(f', {size}' for size in shape[2:])}). Received: "
                f"{tuple(inputs.shape)}."
            )
        check_state(state, self.state_spec(inputs.shape[0]), "model")
        return inputs


def _cast(tensor, dtype):
    """Casts floats as a layer casts its inputs, which keep their mask."""
    if not tensor.dtype.is_floating or tensor.dtype == dtype:
        return tensor
    cast = tf.cast(tensor, dtype)
    cast._keras_mask = getattr(tensor, "_keras_mask", None)
    return cast


def _step(layer, stepper, inputs, state, mask, is_padded):
    """The outputs, with the mask that the layer would give them."""
    if mask is None:
        mask = getattr(inputs, "_keras_mask", None)
    if isinstance(stepper, Stream):
        outputs, state = stepper.step(inputs, state, mask, is_padded)
    else:
        is_blind = mask is None or isinstance(stepper, ConvolutionStep)
        if is_padded and is_blind and state:
            raise rules.padding_refusal(layer)
        outputs, state = stepper.step(inputs, state, mask=mask)
    has_mask = getattr(outputs, "_keras_mask", None) is not None
    if mask is None or has_mask or not layer.supports_masking:
        return outputs, state
    # To tell the mask of a model, tf_keras would call it; it has left none.
    if KERAS_3 or not isinstance(stepper, Stream):
        outputs._keras_mask = layer.compute_mask(inputs, mask)
    return outputs, state


def _identifier(value):
    """The name of a call, as an argument of a signature may be called."""
    name = value.layer
    if value.call:  # Not "_1", with which Keras names its second layer.
        name += f"_call{value.call + 1}"
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    # TensorFlow drops arguments that begin with "_".
    return name if name[:1].isalpha() else f"layer{name}"


_streams = weakref.WeakKeyDictionary()


def stream_of(model: tf.keras.Model) -> Stream:
    """Returns the stream of a model, made at first use."""
    check_functional(model)
    known = _streams.get(model)
    # A Sequential may get more, a nested one, too.
    parts = list(model._flatten_layers(include_self=False))
    # The layers themselves: what is freed may leave its id to another.
    if known is None or [*map(id, known[0])] != [*map(id, parts)]:
        known = _streams[model] = parts, Stream(model)
    return known[1]
