"""A SavedModel that streams: state in, state out, and nothing kept between."""

import os

import tensorflow as tf

from lambdanet_tf.streaming.stream import stream_of


def export(model: tf.keras.Model, path: str | os.PathLike) -> None:
    """Writes a SavedModel with the signatures `initial_state` and `step`.

    A server keeps nothing between two requests: a client, or what stands
    before the server, keeps the state of its sequence and sends it with the
    next piece. `initial_state` takes `batch_size`, an int32 scalar, and returns
    the state by the names of `state_spec`. `step` takes `inputs`, `(batch, n)`
    or `(batch, n, channels)`, and the state, and returns `outputs` and the
    next state by the same names; it is the default signature, too. Batch and n
    are free. What is saved holds no object of Keras.

    Args:
        model: as for `state_spec`.
        path: of the folder to write, which for TensorFlow Serving ends in a
            number: its version.

    Raises:
        ValueError: as `state_spec`; if the model has no state, as one whose
            layers all see a position alone.
        OSError: if the folder cannot be written.

    Examples:
        >>> inputs = tf.keras.Input((None, 8))
        >>> outputs = LambdaLayer(8, scope=5, causal=True, name="mix")(inputs)
        >>> model = tf.keras.Model(inputs, outputs)
        >>> export(model, "mixer/1")
        >>> sorted(tf.saved_model.load("mixer/1").signatures)
        ['initial_state', 'serving_default', 'step']
    """
    stream = stream_of(model)
    spec = stream.state_spec()
    if not spec:
        raise ValueError(
            f"Model {model.name!r} has no state: no layer reads the past. "
            "Export it as any other, by `model.export(path)`."
        )

    @tf.function(autograph=False)
    def initial_state(batch_size):
        return stream.initial_state(batch_size)

    @tf.function(autograph=False)
    def step(inputs, **state):
        outputs, state = stream.step(inputs, state)
        return {"outputs": outputs, **state}

    shape = [None, None, *stream.input.shape[2:]]
    steps = step.get_concrete_function(
        inputs=tf.TensorSpec(shape, stream.input.dtype, "inputs"), **spec
    )
    module = tf.Module()
    module.weights = list(steps.graph.variables)
    signatures = {
        "initial_state": initial_state.get_concrete_function(
            batch_size=tf.TensorSpec([], tf.int32, "batch_size")
        ),
        "step": steps,
        "serving_default": steps,
    }
    tf.saved_model.save(module, os.fspath(path), signatures)
