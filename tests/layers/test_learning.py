"""With the defaults, what is trained is what is inferred.

Fitted as Keras' users do, models follow on validation data what they reach in
training, from the third epoch on.
"""

import inspect
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models

pytestmark = pytest.mark.every_lane

ROOT = pathlib.Path(__file__).parents[2]
LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def python_blocks(page):
    """The Python code of a page, without what a comment excuses."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fence = r"(?<!-->\n)^```python\n(.*?)^```$"
    return re.findall(fence, text, re.MULTILINE | re.DOTALL)


def follows(history, gap, final):
    """Holds validation against training; accuracies at the end of epochs."""
    training, validation = history["accuracy"], history["val_accuracy"]
    for epoch in range(2, len(training)):
        assert validation[epoch] > training[epoch] - gap, history
    assert validation[-1] > final, history


def fit(model, train, validation, epochs, batch_size=32):
    model.compile("adam", LOSS, metrics=["accuracy"])
    return model.fit(
        *train,
        validation_data=validation,
        batch_size=batch_size,
        epochs=epochs,
        verbose=0,
    ).history


def test_the_cells_of_the_readme_print_what_it_says(capsys):
    pytest.importorskip("sklearn", reason="needs the extra `data`")
    namespace = {}
    for block in python_blocks("README.md"):
        exec(block, namespace)
    history = namespace["history"].history
    follows(history, gap=0.2, final=0.85)
    printed = re.search(
        r"^validation accuracy: (\d+\.\d)%$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    final = 100 * history["val_accuracy"][-1]
    assert float(printed[1]) == pytest.approx(final, abs=0.06)
    # Another processor rounds otherwise, and ends elsewhere.
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    low, high = re.search(r"ended at ([\d.]+) to ([\d.]+) %", text).groups()
    assert float(low) - 4 < final < float(high) + 4


def texts(rng, count):
    """Texts of 8 to 16 words; those of a class share ten words."""
    labels = rng.integers(0, 2, count)
    marked = rng.integers(1, 11, (count, 16)) + 10 * labels[:, None]
    is_marked = rng.random(marked.shape) < 0.3
    is_marked[:, 0] = True
    words = np.where(is_marked, marked, rng.integers(21, 1000, marked.shape))
    words[np.arange(16) >= rng.integers(8, 17, (count, 1))] = 0
    return words, labels


def text_classifier(rng):
    """The first one of the page on layers."""
    namespace = {}
    for block in python_blocks("docs/layers.md"):
        exec(block, namespace)
        if "classifier" in namespace:
            break
    classifier = namespace["classifier"]
    history = fit(classifier, texts(rng, 1000), texts(rng, 300), epochs=4)
    return history, 0.06, 0.95


def causal_model(rng):
    """Names the element before the last one of random sequences."""
    tokens = tf.keras.Input((24,), dtype="int32")
    x = tf.keras.layers.Embedding(8, 32)(tokens)
    x = layers.LambdaLayer(scope=15, causal=True)(x)
    x = layers.BatchNormalization()(x)
    x = tf.keras.layers.ReLU()(x)
    model = tf.keras.Model(tokens, tf.keras.layers.Dense(8)(x))
    sequences = rng.integers(0, 8, (1200, 26))
    train, validation = (
        (part[:, 2:], part[:, 1:-1])
        for part in (sequences[:1000], sequences[1000:])
    )
    return fit(model, train, validation, epochs=4), 0.1, 0.8


def stripes(rng, count):
    """Rows, columns, diagonals or squares in noise, in [0, 255]."""
    labels = rng.integers(0, 4, count)
    y, x = np.indices((8, 8))
    patterns = np.stack([y // 2, x // 2, (x + y) // 2, x // 2 + y // 2])
    phases = rng.integers(0, 2, (count, 1, 1))
    images = (patterns[labels] + phases) % 2 * 100 + 30
    images = images + rng.uniform(-30, 30, images.shape)
    return images[..., None], labels


def network(rng):
    model = models.LambdaResNetSmall(
        classifier_activation=None,
        classes=4,
        stages=("L", "L"),
        widths=(8, 16),
        strides=(1, 2),
    )
    history = fit(model, stripes(rng, 320), stripes(rng, 200), 4, batch_size=16)
    return history, 0.1, 0.9


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize("train", [network, text_classifier, causal_model])
def test_validation_follows_training(train, rng):
    history, gap, final = train(rng)
    follows(history, gap, final)


def builders_and_layers():
    yield from (getattr(layers, name) for name in layers.__all__)
    yield from (getattr(models, name) for name in models.names())
    yield models.ResNet
    yield models.MobileNet


@pytest.mark.once
def test_one_momentum_is_the_default_everywhere():
    defaults = {}
    for public in builders_and_layers():
        parameters = inspect.signature(public).parameters
        for argument in ("norm_momentum", "momentum"):
            if argument in parameters:
                name = f"{public.__name__}, {argument}"
                defaults[name] = parameters[argument].default
    assert set(defaults.values()) == {0.9}, defaults
    assert {name.split(",")[0] for name in defaults} > {
        "LambdaLayer",
        "LambdaConv",
        "BatchNormalization",
        "LambdaResNet50",
        "LambdaResNet26T",
        "LambdaMobileNetV2",
    }
    network = models.LambdaResNetSmall(stages=("L",), widths=(8,), strides=(1,))
    norms = [
        norm
        for layer in network.layers
        for norm in (layer, getattr(layer, "query_norm", None))
        if isinstance(norm, layers.BatchNormalization)
    ]
    assert len(norms) == 5
    assert {norm.momentum for norm in norms} == {0.9}
