"""A language model of bytes: lambda layers against self-attention.

    python -m examples.language_model --folder runs/language_model

trains both on the sources of Python's standard library, measures bits per byte
on held-out files and the speed of training and of generation, draws
`speed.png`, exports the lambda model, for whole texts and as a SavedModel that
streams, and lets it write. Run again, it goes on where it was stopped.
`--short` is a form of some seconds that proves that it runs, and nothing else.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import sysconfig
import time

import numpy as np
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf import streaming
from lambdanet_tf.layers import LambdaLayer

KINDS = ("lambda", "attention")
WIDTH, HEADS, BLOCKS, CONTEXT, BATCH = 128, 4, 4, 256, 16
KEY_DIM, PAST = 16, 63  # A scope of 127, of which 63 positions are past.
# The lambda layers are smaller, so their dense layers are wider.
HIDDEN = {"lambda": 704, "attention": 512}
# What a search of rates chose for each: docs/mixers.md, a larger decoder.
RATES = {"lambda": 1e-2, "attention": 3e-3}
CONTEXTS = (256, 1024, 4096, 16384)
FULL = {"steps": 1800, "held_out": 400, "tokens": 64, "contexts": CONTEXTS}
SHORT = {"steps": 4, "held_out": 2, "tokens": 4, "contexts": (256,)}


def read_corpus() -> tuple[np.ndarray, np.ndarray]:
    """Returns training and held-out bytes: every tenth file is held out."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    held_out = [text for i, text in enumerate(files) if i % 10 == 9]
    training = [text for i, text in enumerate(files) if i % 10 != 9]
    return tuple(
        np.frombuffer(b"\n".join(part), np.uint8)
        for part in (training, held_out)
    )


class LanguageModel(tf.keras.Model):
    """A decoder of bytes whose blocks mix positions by one kind of layer.

    Args:
        kind: one of `KINDS`.
        deviation: of a lambda layer's initial embeddings: smaller than the
            paper's 1, which learns bytes more slowly.
    """

    def __init__(self, kind: str, deviation: float = 0.1):
        super().__init__()
        layers = tf.keras.layers
        self.kind, self.deviation = kind, deviation
        self.embed = layers.Embedding(256, WIDTH)
        self.mixers = [self._mixer(i) for i in range(BLOCKS)]
        self.norms = [layers.LayerNormalization() for _ in range(2 * BLOCKS)]
        self.wide = [layers.Dense(HIDDEN[kind], "gelu") for _ in range(BLOCKS)]
        self.narrow = [layers.Dense(WIDTH) for _ in range(BLOCKS)]
        self.norm = layers.LayerNormalization()
        self.logits = layers.Dense(256)

    def _mixer(self, block):
        if self.kind == "attention":
            return tf.keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        return LambdaLayer(
            WIDTH,
            num_heads=HEADS,
            key_dim=KEY_DIM,
            scope=2 * PAST + 1,
            causal=True,
            embeddings_initializer=tf.keras.initializers.RandomNormal(
                stddev=self.deviation
            ),
            name=f"block{block}",
        )

    def call(self, tokens):
        def mix(block, x):
            if self.kind == "lambda":
                return self.mixers[block](x)
            return self.mixers[block](x, x, use_causal_mask=True)

        if self.kind == "lambda":
            return self.forward(tokens, mix, None)
        length = tokens.shape[1] or tf.shape(tokens)[1]
        return self.forward(tokens, mix, tf.range(length))

    def forward(self, tokens, mix, places):
        """`(batch, n)` bytes at `places` -> `(batch, n, 256)` logits."""
        x = self.embed(tokens)  # [b, n, width]
        if self.kind == "attention":  # Which has no positions of its own.
            x += sinusoids(places)
        for block in range(BLOCKS):
            x += mix(block, self.norms[2 * block](x))
            hidden = self.wide[block](self.norms[2 * block + 1](x))
            x += self.narrow[block](hidden)
        return self.logits(self.norm(x))


def build(kind: str) -> tf.keras.Model:
    """Returns a new model; of lambda layers a functional one, which streams."""
    model = LanguageModel(kind)
    if kind == "attention":
        model(tf.zeros([1, CONTEXT], tf.int32))
        return model
    tokens = tf.keras.Input((None,), dtype="int32", name="tokens")
    return tf.keras.Model(tokens, model.call(tokens))


def sinusoids(places):
    """Positions of any length without weights: `(n,)` -> `(n, width)`."""
    rates = 1e4 ** -np.linspace(0, 1, WIDTH // 2, dtype="float32")
    angles = tf.cast(places, tf.float32)[:, None] * rates
    return tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)


class AttentionCache:
    """Generation by attention: keys and values, written in place."""

    def __init__(self, model: LanguageModel, capacity: int):
        shape = [1, capacity, HEADS, WIDTH // HEADS]
        self.model = model
        self.keys, self.values = (
            [tf.Variable(tf.zeros(shape)) for _ in range(BLOCKS)]
            for _ in range(2)
        )
        self.weights = [mixer.get_weights() for mixer in model.mixers]
        self.step = tf.function(self._step)

    def _step(self, tokens, place):
        def mix(block, x):
            q, qb, k, kb, v, vb, out, out_bias = self.weights[block]
            query = (tf.einsum("bnd,dhk->bnhk", x, q) + qb) / q.shape[-1] ** 0.5
            keys, values = self.keys[block], self.values[block]
            key = tf.einsum("bnd,dhk->bnhk", x, k) + kb
            value = tf.einsum("bnd,dhk->bnhk", x, v) + vb
            keys[:, place : place + 1].assign(key)
            values[:, place : place + 1].assign(value)
            scores = tf.einsum("bnhk,bmhk->bhnm", query, keys)
            seen = tf.range(keys.shape[1]) <= place
            weights = tf.nn.softmax(tf.where(seen, scores, -1e9))
            read = tf.einsum("bhnm,bmhk->bnhk", weights, values)
            return tf.einsum("bnhk,hkd->bnd", read, out) + out_bias

        return self.model.forward(tokens, mix, place[None])


def train(kind, corpus, folder, settings, print_fn=print):
    """Trains a model, or goes on from its last checkpoint."""
    model = build(kind)
    rates = tf.keras.optimizers.schedules.CosineDecay(
        0.0, settings["steps"], warmup_target=RATES[kind], warmup_steps=100
    )
    optimizer = tf.keras.optimizers.Adam(rates, global_clipnorm=1.0)
    optimizer.build(model.trainable_variables)
    done, timed, seconds = tf.Variable(0), tf.Variable(0), tf.Variable(0.0)
    checkpoint = tf.train.Checkpoint(
        model=model,
        optimizer=optimizer,
        done=done,
        timed=timed,
        seconds=seconds,
    )
    manager = tf.train.CheckpointManager(checkpoint, str(folder / kind), 1)

    @tf.function
    def update(windows):
        with tf.GradientTape() as tape:
            loss = bits(model(windows[:, :-1]), windows[:, 1:])
        weights = model.trainable_variables
        optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return loss

    manager.restore_or_initialize()
    while done < settings["steps"]:
        first, last = int(done), min(int(done) + 100, settings["steps"])
        loss = update(sample(corpus, first))  # May trace: it is not timed.
        begin = time.perf_counter()
        for number in range(first + 1, last):
            loss = update(sample(corpus, number))
        loss = float(loss)
        seconds.assign_add(time.perf_counter() - begin)
        timed.assign_add(last - first - 1)
        done.assign(last)
        manager.save()
        print_fn(f"{kind} {last}/{settings['steps']}: {loss:.3f} bits a byte")
    return model, int(timed) * BATCH * CONTEXT / float(seconds)


def sample(corpus, number):
    """The windows of an update: a function of its number."""
    rng = np.random.default_rng([17, number])
    starts = rng.integers(0, len(corpus) - CONTEXT - 1, BATCH)
    windows = corpus[starts[:, None] + np.arange(CONTEXT + 1)]
    return tf.constant(windows.astype(np.int32))


def bits(logits, targets):
    """The mean cross-entropy, in bits per byte."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    return tf.reduce_mean(losses) / np.log(2)


def evaluate(model, held_out, settings):
    """Bits per byte over windows of the training's length, one by one."""
    count = min(settings["held_out"], (len(held_out) - 1) // CONTEXT)
    places = np.linspace(0, len(held_out) - CONTEXT - 1, count).astype(int)
    call = tf.function(lambda x: bits(model(x[:, :-1]), x[:, 1:]))
    windows = held_out[places[:, None] + np.arange(CONTEXT + 1)]
    windows = windows.astype(np.int32)[:, None]
    return float(np.mean([call(tf.constant(window)) for window in windows]))


def stream(model, tokens):
    """A function that reads one byte after `tokens`, and its state's bytes."""
    step = tf.function(lambda x, state: streaming.step(model, x, state))
    state = streaming.initial_state(model, 1)
    for begin in range(0, tokens.shape[1], CONTEXT):
        _, state = step(tokens[:, begin : begin + CONTEXT], state)
    size = sum(part.numpy().nbytes for part in state.values())
    return lambda number: step(tokens[:, :1], state), size


def attend(model, tokens, count):
    """The same by attention, whose cache is as long as the text."""
    length = tokens.shape[1]
    cache = AttentionCache(model, length + count)
    size = 2 * BLOCKS * length * WIDTH * 4
    return lambda i: cache.step(tokens[:, :1], tf.constant(length + i)), size


def generation_speed(kind, model, text, context, settings):
    """Bytes a second after `context` bytes, and the bytes of the state."""
    tokens, count = (
        tf.constant(text[:context], tf.int32)[None],
        settings["tokens"],
    )
    if kind == "lambda":
        run, size = stream(model, tokens)
    else:
        run, size = attend(model, tokens, count)
    seconds = []
    for number in range(count):
        begin = time.perf_counter()
        tf.nest.map_structure(np.asarray, run(number))
        seconds.append(time.perf_counter() - begin)
    return 1 / statistics.median(seconds[1:]), size


def export_of_texts(model, folder, texts):
    """Exports the logits of whole texts of any length, verified on some."""
    tokens = tf.keras.Input((None,), dtype="int32", name="tokens")
    network = tf.keras.Model(tokens, {"logits": model(tokens)})
    place = serving.export_model(
        network, folder, "language_model", examples=texts
    )
    verified = serving.verify_export(place)
    if not verified.agrees:
        raise RuntimeError(f"{place} differs from Keras:\n{verified}")
    return place


def generate(folder, prompt: bytes, count: int, temperature=0.7, seed=0):
    """Lets an exported model go on, with TensorFlow alone."""
    signatures = tf.saved_model.load(str(folder)).signatures
    state = signatures["initial_state"](batch_size=tf.constant(1))
    rng, text = np.random.default_rng(seed), bytearray(prompt)
    for place in range(len(prompt) + count - 1):
        token = tf.constant([[text[place]]])
        state = dict(signatures["step"](inputs=token, **state))
        logits = state.pop("outputs")[0, 0].numpy().astype("float64")
        if place + 1 == len(text):
            chances = np.exp((logits - logits.max()) / temperature)
            text.append(rng.choice(256, p=chances / chances.sum()))
    return bytes(text)


def measure(folder: pathlib.Path, short=False, print_fn=print) -> dict:
    """Trains and measures both models; keeps what is finished in `folder`."""
    settings = SHORT if short else FULL
    training, held_out = read_corpus()
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file, results = folder / "results.json", {}
    if file.exists():
        results = json.loads(file.read_text())
    for kind in KINDS:
        if kind in results:
            continue
        model, speed = train(kind, training, folder, settings, print_fn)
        seconds = settings["steps"] * BATCH * CONTEXT / speed
        rows = [
            [
                context,
                *generation_speed(kind, model, held_out, context, settings),
            ]
            for context in settings["contexts"]
        ]
        if kind == "lambda":
            streaming.export(model, folder / "exported" / "1")
            texts = held_out[: 4 * CONTEXT].reshape(4, CONTEXT)
            export_of_texts(model, folder / "served", texts)
        results[kind] = {
            "parameters": model.count_params(),
            "bits per byte": evaluate(model, held_out, settings),
            "training bytes per second": speed,
            "training minutes": seconds / 60,
            "generation": rows,
        }
        results["machine"] = (
            f"{platform.machine()}, {os.cpu_count()} CPU cores, "
            f"Python {platform.python_version()}, TensorFlow "
            f"{tf.__version__}; {len(training):,} bytes to learn from, "
            f"{settings['steps']} updates of {BATCH} x {CONTEXT} bytes"
        )
        file.write_text(json.dumps(results, indent=1))
    return results


def table(results: dict) -> str:
    """The results in Markdown."""
    lines = ["| | " + " | ".join(KINDS) + " |", "|---" * 3 + "|"]
    for name, form in (
        ("parameters", "{:,}"),
        ("bits per byte", "{:.3f}"),
        ("training bytes per second", "{:,.0f}"),
        ("training minutes", "{:.1f}"),
    ):
        cells = [form.format(results[kind][name]) for kind in KINDS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for rows in zip(*(results[k]["generation"] for k in KINDS), strict=True):
        cells = [f"{speed:,.0f} ({size / 1e6:.2f})" for _, speed, size in rows]
        lines.append(
            f"| generated bytes per second after {rows[0][0]:,} (MB of state) "
            f"| {' | '.join(cells)} |"
        )
    return "\n".join([*lines, "", results["machine"]])


def picture(results: dict):
    """A figure: speed and memory of generation as the context grows."""
    import matplotlib.figure  # noqa: PLC0415

    figure = matplotlib.figure.Figure(figsize=(9, 3.4), layout="constrained")
    speeds, sizes = figure.subplots(1, 2)
    for kind, color in zip(KINDS, ("#3366aa", "#dd7722"), strict=True):
        contexts, speed, size = zip(*results[kind]["generation"], strict=True)
        speeds.plot(contexts, speed, marker="o", color=color, label=kind)
        sizes.plot(contexts, np.array(size) / 1e6, marker="o", color=color)
    for axes in (speeds, sizes):
        axes.set_xscale("log", base=2)
        axes.set_xticks(contexts, [f"{n:,}" for n in contexts])
        axes.set_xlabel("bytes of context")
        axes.grid(alpha=0.25)
    speeds.set(title="generated bytes per second", ylim=(0, None))
    sizes.set(title="state or cache, MB", yscale="log")
    speeds.legend(frameon=False)
    return figure


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=pathlib.Path, default="runs/language_model"
    )
    parser.add_argument("--short", action="store_true")
    parser.add_argument(
        "--write", type=pathlib.Path, help="put table and picture into docs"
    )
    flags = parser.parse_args()
    results = measure(flags.folder, flags.short)
    print(table(results))
    picture(results).savefig(flags.folder / "speed.png", dpi=110)
    if flags.write:
        from benchmarks import render  # noqa: PLC0415 - of the repository

        image = "![Speed and memory of generation](language_model.png)"
        text = f"{table(results)}\n\n{image}"
        page = flags.write / "sequences.md"
        render.replace(page, "language_model", text, write=True)
        picture(results).savefig(flags.write / "language_model.png", dpi=110)
    text = generate(flags.folder / "exported" / "1", b"def read_", 400)
    print(text.decode(errors="replace"))


if __name__ == "__main__":
    main()
