"""Streaming of a whole model: walks its graph, with a state.

We keep no list of layers that can stream. If a layer has `initial_state` and
`step`, we use them; every other layer is called on the new positions. At first
use, we test each call on random inputs, whole and in two pieces. If the outputs
of a layer differ, an error names it.
"""

import functools
import weakref
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.models import check_functional
from lambdanet_tf.models.graph import calls
from lambdanet_tf.models.graph import is_graph
from lambdanet_tf.models.graph import layers_in
from lambdanet_tf.models.graph import walk
from lambdanet_tf.streaming import convolution

State = dict[str, Any]
_LENGTH = 64  # of the test, longer than most windows


def state_spec(model: tf.keras.Model, batch_size: int | None = None) -> State:
    """Returns the shapes and dtypes of a model's state, for a signature.

    Args:
        model: functional or Sequential, from `(batch, positions)` tokens or
            `(batch, positions, channels)` to `(batch, positions, ...)`. Each
            layer either has `initial_state(batch_size)` and `step(inputs,
            state)`, as causal lambda layers do, or computes every position
            from that position only. Causal `Conv1D`s can stream, too.
        batch_size: int, or None if it varies.

    Returns:
        The state with a `tf.TensorSpec` in place of each tensor. If a size is
        0 at first, it grows and is None here.

    Raises:
        ValueError: if the model has several inputs or outputs, or if a layer
            cannot stream; the text names the layer.
    """

    def spec(part):
        sizes = [size or None for size in part.shape[1:]]
        return tf.TensorSpec([batch_size, *sizes], part.dtype)

    return tf.nest.map_structure(spec, initial_state(model, 1))


@tf.autograph.experimental.do_not_convert
def initial_state(model: tf.keras.Model, batch_size: int | tf.Tensor) -> State:
    """Returns the state of sequences before their first position.

    Args:
        model: as in `state_spec`.
        batch_size: int or scalar tensor. Number of sequences.

    Returns:
        A dictionary from layers' names to dictionaries of tensors, batch first.
        The state of a nested model is nested, too. A layer's second call is
        `<name>_call2`.

    Raises:
        ValueError: as in `state_spec`.
    """
    tested(model)
    return _initial_state(model, batch_size)


@tf.autograph.experimental.do_not_convert
def step(
    model: tf.keras.Model, inputs: Any, state: State
) -> tuple[tf.Tensor, State]:
    """Computes the outputs of the next positions, in inference.

    Up to rounding, they equal the outputs of a call on the whole sequence,
    however you cut it into pieces. To compile a step, use
    `tf.function(lambda inputs, state: streaming.step(model, inputs, state))`.

    Args:
        model: as in `state_spec`.
        inputs: `(batch, n)` tokens or `(batch, n, channels)`: one or more new
            positions.
        state: the state from `initial_state` or the previous step.

    Returns:
        `(batch, n, ...)`, and the next state.

    Raises:
        ValueError: as in `state_spec`, and if the inputs or the state do not
            fit.
    """
    tested(model)
    arguments = (tf.convert_to_tensor(inputs),), {}
    given = state if isinstance(state, dict) else {}
    outputs, after = _stepped(model, arguments, given)
    if after.keys() != given.keys():
        raise ValueError(
            "`state` must come from `initial_state` or `step` of this model, "
            f"with the layers {[*after]}. Received: {[*given]}."
        )
    return outputs, after


def has_step(layer: Any) -> bool:
    """Returns whether a layer has `initial_state` and `step`."""
    names = ("initial_state", "step")
    return all(callable(getattr(layer, name, None)) for name in names)


def _initial_state(layer, batch_size):
    """Returns the state of a layer, {} if it needs none."""
    if has_step(layer):
        return layer.initial_state(batch_size)
    if convolution.streams(layer):
        return convolution.initial_state(layer, batch_size)
    state = {}
    for name, inner, _ in calls(layer) if is_graph(layer) else ():
        if part := _initial_state(inner, batch_size):
            state[name] = part
    return state


def _stepped(layer, arguments, state):
    """Computes a call at new positions: its outputs and the next state."""
    args, kwargs = arguments
    if has_step(layer):
        return layer.step(args[0], state)
    if convolution.streams(layer):
        return convolution.step(layer, args[0], state)
    if not is_graph(layer):
        return layer(*args, **kwargs), {}
    after = {}

    def call(name, inner, arguments):
        outputs, part = _stepped(inner, arguments(), state.get(name, {}))
        if part:
            after[name] = part
        return outputs

    return walk(layer, args, call), after


_known = weakref.WeakKeyDictionary()


def tested(model: tf.keras.Model) -> tuple[bool, dict]:
    """Tests a model at first use; returns if outputs sum to 1, and a cache."""
    check_functional(model)
    layers = layers_in(model)[1:]  # A Sequential may get more of them.
    if model not in _known or _known[model][0] != layers:
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            raise ValueError(
                f"Model {model.name!r} cannot stream, because it must have one "
                f"input and one output. Received: {len(model.inputs)} input(s) "
                f"and {len(model.outputs)} output(s)."
            )
        # On the CPU, because GPUs round float32 products to ten bits.
        with tf.init_scope(), tf.device("CPU:0"):
            inputs = _random_inputs(model.inputs[0])
            test = functools.partial(_test, inputs.shape[:2])
            outputs = np.asarray(walk(model, inputs, test)).astype(np.float64)
        sums = outputs.sum(axis=-1)
        is_softmax = np.all(outputs >= 0) and np.allclose(sums, 1, atol=0.02)
        _known[model] = layers, bool(is_softmax), {}
    return _known[model][1:]


def _random_inputs(symbol):
    """Returns two sequences of random tokens 0 and 1, or normal numbers."""
    batch, length, *sizes = symbol.shape
    length = min(max(length or _LENGTH, 2), _LENGTH)
    shape = (batch or 2, length, *sizes)
    rng, dtype = np.random.default_rng(0), tf.as_dtype(symbol.dtype)
    if dtype.is_floating:
        return tf.constant(rng.normal(size=shape), dtype)
    return tf.constant(rng.integers(0, 2, shape), dtype)


def _test(shape, name, layer, arguments):
    """Computes the outputs of a call; raises if those in pieces differ."""
    args, kwargs = arguments()
    if is_graph(layer) and not has_step(layer):
        return walk(layer, args, functools.partial(_test, shape))
    batch, length = shape
    state, pieces = _initial_state(layer, batch), []
    try:
        whole = layer(*args, **kwargs)
        for piece in (slice(0, length // 2), slice(length // 2, length)):
            given = arguments(lambda x, piece=piece: x[:, piece])
            outputs, state = _stepped(layer, given, state)
            pieces.append(tf.nest.flatten(outputs))
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        raise _refusal(layer, f"{error}") from error
    for x, *parts in zip(tf.nest.flatten(whole), *pieces, strict=True):
        if not _are_pieces(x, parts, length):
            raise _refusal(
                layer,
                "its outputs for two pieces differ from those for the whole "
                "sequence. It reads other positions without a `step`, or has a "
                "mask. Replace it with a causal lambda layer or `Conv1D`",
            )
    return tf.nest.map_structure(_nonzero, whole)


def _refusal(layer, reason):
    return ValueError(f"Layer {layer.name!r} cannot stream: {reason}.")


def _are_pieces(whole, parts, length):
    """Returns whether the parts along axis 1 equal the whole, to rounding."""
    lengths = length, length // 2, length - length // 2
    shapes = [whole.shape[:1] + [n] + whole.shape[2:] for n in lengths]
    if [x.shape for x in (whole, *parts)] != shapes:
        return False
    found = np.concatenate(parts, axis=1).astype(np.float64)
    whole = np.asarray(whole).astype(np.float64)
    scale = np.max(np.abs(whole), where=np.isfinite(whole), initial=0.0)
    rounding = scale * (0.1 if parts[0].dtype.size == 2 else 1e-4)
    return np.allclose(found, whole, rtol=0, atol=rounding, equal_nan=True)


def _nonzero(x):
    """Returns a tensor, or random numbers if it is zero as at first."""
    if not x.dtype.is_floating or np.any(x):
        return x
    return tf.random.stateless_normal(x.shape, [0, 0], dtype=x.dtype)
