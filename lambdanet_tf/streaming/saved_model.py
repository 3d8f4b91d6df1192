"""A stateless SavedModel that streams: it takes and returns the state."""

import os
from typing import Any

import tensorflow as tf

from lambdanet_tf.streaming.stream import initial_state
from lambdanet_tf.streaming.stream import state_spec
from lambdanet_tf.streaming.stream import step


def export(model: tf.keras.Model, path: str | os.PathLike) -> None:
    """Writes a SavedModel with the signatures `initial_state` and `step`.

    The server keeps nothing between two requests: the client stores the state
    of its sequence, and sends it with the next piece. `initial_state` takes
    `batch_size`, an int32 scalar, and returns the state as `state_0`, `state_1`
    and so on. `step`, which is also the default signature, takes the state and
    `inputs`, `(batch, n)` or `(batch, n, channels)`, and returns `outputs` and
    the next state. Batch and n can vary. The SavedModel does not need Keras.

    Args:
        model: as in `state_spec`.
        path: folder to write. TensorFlow Serving needs a version number at the
            end of its name.

    Raises:
        ValueError: as in `state_spec`.
        OSError: if the folder cannot be written.
    """
    nested = state_spec(model)
    # TensorFlow would drop or merge some names of layers.
    names = [f"state_{n}" for n in range(len(tf.nest.flatten(nested)))]

    def flat(state):
        return dict(zip(names, tf.nest.flatten(state), strict=True))

    @tf.function(autograph=False)
    def first(batch_size):
        return flat(initial_state(model, batch_size))

    @tf.function(autograph=False)
    def steps(inputs, **state):
        parts = [state[name] for name in names]
        given = tf.nest.pack_sequence_as(nested, parts)
        outputs, after = step(model, inputs, given)
        return {"outputs": outputs, **flat(after)}

    symbol = model.inputs[0]
    shape = [None, None, *symbol.shape[2:]]
    specs = {
        name: tf.TensorSpec(spec.shape, spec.dtype, name)
        for name, spec in flat(nested).items()
    }
    served = steps.get_concrete_function(
        inputs=tf.TensorSpec(shape, symbol.dtype, "inputs"), **specs
    )
    module: Any = tf.Module()
    module.weights = list(served.graph.variables)
    signatures = {
        "initial_state": first.get_concrete_function(
            batch_size=tf.TensorSpec([], tf.int32, "batch_size")
        ),
        "step": served,
        "serving_default": served,
    }
    tf.saved_model.save(module, os.fspath(path), signatures)
