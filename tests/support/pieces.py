"""Sequences that come in pieces."""

import tensorflow as tf


def in_pieces(step, state, inputs, pieces):
    """The outputs of all pieces of a sequence, and the last state."""
    assert sum(pieces) == inputs.shape[1]
    outputs, begin = [], 0
    for length in pieces:
        output, state = step(inputs[:, begin : begin + length], state)
        outputs.append(output)
        begin += length
    return tf.concat(outputs, axis=1), state
