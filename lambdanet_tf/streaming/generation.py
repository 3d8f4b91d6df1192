"""Text of a model: a token is drawn, and read by the next step."""

import functools
import numbers
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import check_int
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.streaming import rules
from lambdanet_tf.streaming.stream import stream_of


def generate(
    model: tf.keras.Model,
    prompt: Any,
    length: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int | None = None,
    end_token: int | None = None,
) -> tf.Tensor:
    """Continues sequences of tokens.

    The prompt is read by one step, each new token by another, in one compiled
    loop: a token costs the same wherever it stands, but for global attention,
    which reads all that was seen. The loop is compiled at the first call for a
    model, and again for prompts of another shape, until it is for any.

    Args:
        model: as for `state_spec`, from tokens `(batch, positions)` to logits
            `(batch, positions, tokens)` of the next token; or to their
            softmax, by the layer, activation or function of that name, behind
            which only dtypes change in inference.
        prompt: ints `(batch, n)` with one or more tokens, of a dtype that holds
            all tokens. A model whose `Embedding` has `mask_zero` takes prompts
            of several lengths with zeros before them, if that mask reaches
            every layer that reads the past. A `Conv1D` takes none, and `+`
            drops it.
        length: int. How many tokens to add.
        temperature: 0 for the likeliest token; else what logits are divided
            by before a token is drawn.
        top_k: None for all, or how many of the likeliest tokens one is drawn
            from.
        seed: int32, which draws depend on alone; None for another draw in every
            call, which `tf.keras.utils.set_random_seed` repeats.
        end_token: None, or the token behind which a sequence has ended: the
            rest of it is this token. Nothing more is computed once all have.

    Returns:
        `(batch, n + length)` of the prompt's dtype: prompts and what follows.

    Raises:
        ValueError: as `state_spec`; if the model is not of tokens, an argument
            is out of its range, prompt and length are longer than the table of
            a global layer, or padding is behind tokens or would be read.

    Examples:
        >>> tokens = tf.keras.Input((None,), dtype="int32")
        >>> x = tf.keras.layers.Embedding(16, 8)(tokens)
        >>> x = LambdaLayer(8, scope=5, causal=True)(x)
        >>> model = tf.keras.Model(tokens, tf.keras.layers.Dense(16)(x))
        >>> generate(model, [[1, 2, 3]], length=4).shape
        TensorShape([1, 7])
    """
    _check_prompt(prompt)
    stream, prompt = stream_of(model), tf.convert_to_tensor(prompt)
    _check_tokens(model, prompt, end_token)
    length = positive_int("length", length)
    _check_draw(temperature, top_k, seed, model.outputs[0].shape[-1])
    _check_vocabulary(stream, prompt)
    _check_padding(stream, prompt)
    if seed is None:
        draw = temperature > 0
        limit = np.iinfo(np.int32).max
        seed = tf.random.uniform([], 0, limit, tf.int32) if draw else 0
    options = bool(temperature), top_k, end_token is None
    weights, generator = stream.generators.get(options, ([], None))
    # `enable_lora` of Keras 3 gives a layer other variables.
    if generator is None or [*map(id, weights)] != [*map(id, model.weights)]:
        # The weights themselves: what is freed may leave its id to another.
        generator = _generator(stream, *options)
        stream.generators[options] = model.weights, generator
    tokens = generator(
        tf.cast(prompt, tf.int32),
        tf.constant(length),
        # Less would make the quotients of logits infinite.
        tf.constant(max(temperature, 1e-30), tf.float32),
        tf.cast(seed, tf.int32),
        tf.constant(-1 if end_token is None else end_token, tf.int32),
    )
    return tf.cast(tokens, prompt.dtype)


def _check_prompt(prompt):
    try:
        tf.convert_to_tensor(prompt)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`prompt` must be integers (batch, n), rows of one length. "
            f"Received: prompt={prompt!r}."
        ) from error


def _check_tokens(model, prompt, end_token):
    ranks = [len(model.inputs[0].shape), len(model.outputs[0].shape)]
    if ranks != [2, 3]:
        raise ValueError(
            "`model` must map tokens (batch, positions) to logits (batch, "
            "positions, tokens). Received: a model from "
            f"{tuple(model.inputs[0].shape)} to "
            f"{tuple(model.outputs[0].shape)}."
        )
    is_empty = prompt.shape.rank == 2 and 0 in prompt.shape
    if prompt.shape.rank != 2 or not prompt.dtype.is_integer or is_empty:
        raise ValueError(
            "`prompt` must be integers (batch, n), one or more of each. "
            f"Received: {prompt.dtype.name} of shape {tuple(prompt.shape)}."
        )
    tokens = model.outputs[0].shape[-1]
    if prompt.dtype.max < tokens - 1:
        raise ValueError(
            f"`prompt` must be of a dtype that holds all {tokens} tokens of "
            f"the model, as int32 does. Received: {prompt.dtype.name}, up to "
            f"{prompt.dtype.max}."
        )
    if end_token is not None:
        check_int("end_token", end_token, 0, tokens - 1)


def _check_draw(temperature, top_k, seed, tokens):
    is_number = isinstance(temperature, numbers.Real)
    if not is_number or not 0 <= float(temperature) < float("inf"):
        raise ValueError(
            "`temperature` must be 0 or a positive number. Received: "
            f"temperature={temperature!r}."
        )
    if seed is not None and not tf.is_tensor(seed):
        check_int("seed", seed, tf.int32.min, tf.int32.max)
    if top_k is None:
        return
    if positive_int("top_k", top_k) > (tokens or top_k):
        raise ValueError(
            f"`top_k` must be at most the number of tokens, {tokens}. "
            f"Received: top_k={top_k}."
        )


def _check_vocabulary(stream, prompt):
    tokens, size = tf.get_static_value(prompt), stream.vocabulary
    if tokens is None or size is None:
        return
    if np.min(tokens) < 0 or np.max(tokens) >= size:
        raise ValueError(
            "`prompt` must hold tokens that the model embeds, 0 to "
            f"{size - 1}. Received: {np.min(tokens)} to {np.max(tokens)}."
        )


def _check_padding(stream, prompt):
    tokens = tf.get_static_value(prompt)
    if tokens is None or not stream.has_padding:
        return
    has_tokens = np.any(tokens, axis=1)
    is_behind = (tokens[:, -1] == 0) & has_tokens
    if np.any(is_behind):
        raise ValueError(
            "`prompt` must have its padding, zeros, before its tokens. "
            f"Received: {tokens[is_behind][0].tolist()} among its rows."
        )
    if np.any((tokens[:, 0] == 0) & has_tokens):
        state = stream.initial_state(1)
        stream.step(tf.zeros([1, 1], tf.int32), state, is_padded=True)


def _generator(stream, is_drawn, top_k, is_endless):
    """The compiled loop of a model."""
    are_probabilities = rules.is_softmax(stream.last_layer)

    def pick(logits, place, temperature, seed):
        """A token for each sequence, of `(batch, tokens)`."""
        logits = tf.cast(logits, tf.float32)
        if are_probabilities:
            logits = tf.math.log(logits)
        if not is_drawn:
            return tf.argmax(logits, axis=-1, output_type=tf.int32)
        if top_k is not None:
            least = tf.math.top_k(logits, top_k).values[:, -1:]
            logits = tf.where(logits < least, -float("inf"), logits)
        tokens = tf.random.stateless_categorical(
            logits / temperature, 1, [seed, place], tf.int32
        )
        return tokens[:, 0]

    @functools.partial(tf.function, autograph=False, reduce_retracing=True)
    def generator(prompt, length, temperature, seed, end_token):
        batch = tf.shape(prompt)[0]
        outputs, state = stream.step(prompt, stream.initial_state(batch))
        token = pick(outputs[:, -1], 0, temperature, seed)  # [b]
        written = tf.fill([length, batch], end_token)
        written = tf.tensor_scatter_nd_update(written, [[0]], token[None])

        def goes_on(place, token, ended, written, state):
            return (place < length) & ~tf.reduce_all(ended)

        def write(place, token, ended, written, state):
            outputs, state = stream.step(token[:, None], state)
            token = pick(outputs[:, -1], place, temperature, seed)
            token = tf.where(ended, end_token, token)
            written = tf.tensor_scatter_nd_update(
                written, [[place]], token[None]
            )
            ended = ended if is_endless else token == end_token
            return place + 1, token, ended, written, state

        ended = tf.zeros_like(token, tf.bool)
        if not is_endless:
            ended = token == end_token
        # A state may grow, and so has a shape of its own in every round.
        shapes = {name: x.shape for name, x in stream.state_spec().items()}
        sizes = [tf.TensorShape([]), *[tf.TensorShape([None])] * 2]
        *_, written, _ = tf.while_loop(
            goes_on,
            write,
            (tf.constant(1), token, ended, written, state),
            (*sizes, tf.TensorShape([None, None]), shapes),
        )
        return tf.concat([prompt, tf.transpose(written)], axis=1)

    return generator
