"""Autoregressive sampling: a token is drawn, and read by the next step."""

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import check_int
from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.streaming.stream import initial_state
from lambdanet_tf.streaming.stream import step
from lambdanet_tf.streaming.stream import tested


def generate(
    model: tf.keras.Model, prompt: Any, length: int, **options: Any
) -> tf.Tensor:
    """Continues sequences of tokens.

    Args:
        model: as for `tokens`.
        prompt: as there.
        length: int. How many tokens to add.
        **options: `temperature`, `top_k`, `top_p`, `seed` and `end_token` of
            `tokens`. Nothing more is computed once all sequences have ended.

    Returns:
        `(batch, n + length)` of the prompt's dtype: prompts and what follows.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: as `tokens`.
    """
    positive_int("length", length)
    prompt = _checked(prompt)
    new = [*tokens(model, prompt, length, **options)]
    new += new[-1:] * (length - len(new))  # End tokens.
    added = tf.cast(tf.stack(new, axis=1), prompt.dtype)
    return tf.concat([prompt, added], axis=1)


def tokens(
    model: tf.keras.Model,
    prompt: Any,
    length: int | None = None,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    end_token: int | None = None,
) -> Iterator[np.ndarray]:
    """Yields the tokens that continue sequences, one at a time.

    The prompt is read by one step, each new token by another, in functions that
    are compiled at the first call for a model and its options.

    Args:
        model: as for `state_spec`, from tokens `(batch, positions)` to logits
            `(batch, positions, tokens)` of the next token, or to their
            softmax.
        prompt: integers `(batch, n)`, one or more of each.
        length: int, or None to go on until all sequences have ended.
        temperature: 0 for the likeliest token; else what logits are divided by
            before a token is drawn.
        top_k: None for all, or how many of the likeliest tokens one is drawn
            from.
        top_p: None for all, or a probability in [0, 1]: a token is drawn from
            the fewest likeliest ones, of those of `top_k`, that have it
            together.
        seed: int32, which draws depend on alone; None for another draw in every
            call, which `tf.keras.utils.set_random_seed` repeats.
        end_token: None, or the token behind which a sequence has ended: the
            rest of it is this token.

    Yields:
        int32 `(batch,)`: the next token of each sequence.

    Raises:
        ValueError: as `state_spec`; if the model is not of tokens, or an
            argument is out of its range.
        tf.errors.InvalidArgumentError: if outputs of the model are NaN, or all
            tokens impossible.
    """
    new, place, ended = _checked(prompt), 0, np.array(False)
    state = initial_state(model, new.shape[0])
    size = model.outputs[0].shape[-1]
    _check(size, temperature, top_k, top_p, end_token)
    draws, rank = temperature > 0, top_k
    if rank is None and top_p is not None:
        rank = size
    if seed is None:  # Nothing is drawn of Keras' seed in vain.
        limit = tf.int32.max
        seed = tf.random.uniform([], 0, limit, tf.int32) if draws else 0
    numbers = (
        # Less would make the quotients of logits infinite.
        tf.constant(max(temperature, 1e-30), tf.float32),
        # One token at least.
        tf.constant(1.0 if top_p is None else max(top_p, 1e-30), tf.float32),
        tf.cast(seed, tf.int32),
        tf.constant(-1 if end_token is None else end_token, tf.int32),
    )
    while place != length and not ended.all():
        # Two functions: single tokens are not of unknown length.
        read = _reader(model, draws, rank, place == 0)
        token, state = read(new, state, tf.constant(place), ended, numbers)
        yield token.numpy()
        ended = token.numpy() == end_token
        new, place = token[:, None], place + 1


def _checked(prompt):
    prompt = tf.convert_to_tensor(prompt)
    fits = prompt.dtype.is_integer and prompt.shape.rank == 2
    if not fits or 0 in prompt.shape:
        raise ValueError(
            "`prompt` must be integers (batch, n), one or more of each. "
            f"Received: {prompt.dtype.name} of shape {tuple(prompt.shape)}."
        )
    return prompt


def _check(size, temperature, top_k, top_p, end_token):
    if not temperature >= 0:
        raise ValueError(
            "`temperature` must be 0 or a positive number. Received: "
            f"temperature={temperature!r}."
        )
    if top_k is not None:
        check_int("top_k", top_k, 1, size)
    if end_token is not None:
        check_int("end_token", end_token, 0, size - 1)
    if top_p is not None:
        fraction("top_p", top_p)


def _reader(model, draws, rank, is_first):
    """Returns a compiled function that reads tokens and picks the next."""
    ends_in_softmax, known = tested(model)
    # `enable_lora` of Keras 3 gives a layer other variables. They are kept, so
    # that no other variable gets the id of one.
    weights = model.weights
    key = draws, rank, is_first, *map(id, weights)
    # A model that its own function referred to would never be freed.
    model = weakref.ref(model)

    @tf.function(autograph=False, reduce_retracing=True)
    def read(new, state, place, ended, numbers):
        outputs, state = step(model(), new, state)
        logits = tf.cast(outputs[:, -1], tf.float32)
        if ends_in_softmax:
            logits = tf.math.log(logits)
        return _pick(draws, rank, logits, place, ended, numbers), state

    return known.setdefault(key, (read, weights))[0]


def _pick(draws, rank, logits, place, ended, numbers):
    """Returns a token for each sequence, the end token behind its end."""
    temperature, top_p, seed, end = numbers
    is_nan = tf.reduce_any(tf.math.is_nan(logits))
    is_finite = tf.math.is_finite(tf.reduce_max(logits, axis=-1))
    tf.debugging.Assert(
        tf.reduce_all(is_finite) & ~is_nan,
        ["The outputs of the model are not finite at new token", place],
    )
    if not draws:
        token = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return tf.where(ended, end, token)
    logits, order = logits / temperature, None
    if rank is not None:
        logits, order = tf.math.top_k(logits, rank)  # the likeliest first
        likelier = tf.cumsum(tf.nn.softmax(logits), axis=-1, exclusive=True)
        logits = tf.where(likelier < top_p, logits, -float("inf"))
    drawn = tf.random.stateless_categorical(logits, 1, [seed, place], tf.int32)
    if order is not None:
        drawn = tf.gather(order, drawn, batch_dims=1)
    return tf.where(ended, end, drawn[:, 0])
