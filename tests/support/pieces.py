"""Sequences that come in pieces."""

import itertools

import tensorflow as tf


def in_pieces(step, state, inputs, pieces):
    """The outputs of all pieces of a sequence, and the last state."""
    ends = list(itertools.accumulate(pieces))
    assert ends[-1] == inputs.shape[1]
    outputs = []
    for begin, end in zip([0, *ends], ends, strict=False):
        output, state = step(inputs[:, begin:end], state)
        outputs.append(output)
    return tf.concat(outputs, axis=1), state
