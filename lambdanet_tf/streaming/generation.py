"""Autoregressive sampling: draws a token, which the next step reads."""

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
        model: as in `tokens`.
        prompt: as in `tokens`.
        length: int. How many tokens to add.
        **options: `temperature`, `top_k`, `top_p`, `seed` and `end_token` of
            `tokens`. Computation stops once all sequences have ended.

    Returns:
        `(batch, n + length)` in the prompt's dtype: prompts and new tokens.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: as in `tokens`.
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

    One step reads the prompt, and each new token takes one more step. The first
    call for a model and its options compiles these steps.

    Args:
        model: as in `state_spec`, from tokens `(batch, positions)` to logits
            `(batch, positions, tokens)` of the next token, or to their
            softmax.
        prompt: integers `(batch, n)`, at least one sequence of one token.
        length: int, or None to go on until all sequences have ended.
        temperature: 0 for the most likely token. Otherwise logits are divided
            by it before a token is drawn.
        top_k: None for all tokens, or an int to draw only from that many of the
            most likely tokens.
        top_p: None for all tokens, or a probability in [0, 1] to draw only from
            the smallest set of most likely tokens (of the `top_k`) that
            reaches it.
        seed: int32 that determines all draws. None for different draws in each
            call, which `tf.keras.utils.set_random_seed` repeats.
        end_token: None, or the token that ends a sequence. The rest of the
            sequence repeats it.

    Yields:
        int32 `(batch,)`: the next token of each sequence.

    Raises:
        ValueError: as in `state_spec`, and if the model does not take tokens or
            an argument is out of range.
        tf.errors.InvalidArgumentError: if the model returns NaN, or if no token
            is possible.
    """
    new, place, ended = _checked(prompt), 0, np.array(False)
    state = initial_state(model, new.shape[0])
    size = model.outputs[0].shape[-1]
    _check(size, temperature, top_k, top_p, end_token)
    draws, rank = temperature > 0, top_k
    if rank is None and top_p is not None:
        rank = size
    if seed is None:  # Draw from the global generator only if needed.
        limit = tf.int32.max
        seed = tf.random.uniform([], 0, limit, tf.int32) if draws else 0
    numbers = (
        # A smaller divisor would make logits infinite.
        tf.constant(max(temperature, 1e-30), tf.float32),
        # At least one token remains.
        tf.constant(1.0 if top_p is None else max(top_p, 1e-30), tf.float64),
        tf.cast(seed, tf.int32),
        tf.constant(-1 if end_token is None else end_token, tf.int32),
    )
    while place != length and not ended.all():
        # Two functions, because a single token has a static length.
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
            "`prompt` must be an integer array (batch, n) that is not empty. "
            f"Received: {prompt.dtype.name} of shape {tuple(prompt.shape)}."
        )
    return prompt


def _check(size, temperature, top_k, top_p, end_token):
    if not temperature >= 0:
        raise ValueError(
            "`temperature` must be 0, for the most likely token, or positive. "
            f"Received: temperature={temperature!r}."
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
    # Keras 3's `enable_lora` replaces variables of a layer. We keep a reference
    # to them, so that no other variable gets the same id.
    weights = model.weights
    key = draws, rank, is_first, *map(id, weights)
    # If its own function referred to the model, it would never be freed.
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
    """Returns a token for each sequence, or the end token after its end."""
    temperature, top_p, seed, end = numbers
    is_nan = tf.reduce_any(tf.math.is_nan(logits))
    is_finite = tf.math.is_finite(tf.reduce_max(logits, axis=-1))
    tf.debugging.Assert(
        tf.reduce_all(is_finite) & ~is_nan,
        ["The model returns NaN or no possible token at new token", place],
    )
    if not draws:
        token = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return tf.where(ended, end, token)
    logits, order = logits / temperature, None
    if rank is not None:
        logits, order = tf.math.top_k(logits, rank)  # the most likely first
        # Rounded sums would keep one more of tokens that are equally likely.
        shares = tf.exp(tf.cast(logits - logits[:, :1], tf.float64))
        likelier = tf.cumsum(shares, axis=-1, exclusive=True)
        is_kept = likelier < top_p * tf.reduce_sum(shares, -1, keepdims=True)
        logits = tf.where(is_kept, logits, -float("inf"))
    drawn = tf.random.stateless_categorical(logits, 1, [seed, place], tf.int32)
    if order is not None:
        drawn = tf.gather(order, drawn, batch_dims=1)
    return tf.where(ended, end, drawn[:, 0])
