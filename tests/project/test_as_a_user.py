"""Every public layer and every family of networks, as their user uses them.

Built, compiled with Keras' defaults, fitted, validated, saved, loaded and
exported; what is loaded computes what was saved.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3
from tests.support import checks
from tests.support import networks
from tests.support import timm_golden

pytestmark = pytest.mark.every_lane


def resnet(spec, **changes):
    return lambda: models.ResNet(
        dataclasses.replace(spec, **changes),
        input_shape=(16, 16, 3),
        classes=5,
        classifier_activation=None,
    )


SHALLOW = {"stages": ("C", "L"), "widths": (8, 16), "strides": (1, 2)}
FAMILIES = {
    "every_layer": networks.every_layer,
    "resnet": resnet(networks.TINY, **SHALLOW),
    "attention": resnet(networks.ATTENTION),
    "timm": resnet(timm_golden.TINY, **SHALLOW),
    "mobilenet": lambda: networks.tiny_mobilenet(
        lambda_blocks=(2, 4), key_dim=4, classifier_activation=None
    ),
}


def test_one_network_has_every_layer():
    used = networks.every_layer().layers
    tables = [getattr(layer, "position_embedding", None) for layer in used]
    kinds = {type(layer).__name__ for layer in (*used, *tables)}
    assert kinds >= {*layers.__all__}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_networks_from_build_to_export(name, rng, tmp_path):
    model = FAMILIES[name]()
    for weight in model.trainable_weights:  # Branches of gamma 0 learn nothing.
        if "gamma" in weight.name:
            weight.assign(tf.ones_like(weight))
    shape = (8, *model.input_shape[1:])
    x = rng.normal(size=shape).astype("float32")
    if name != "every_layer":  # Networks take pixels.
        x = 127.5 + 50 * x
    y = rng.integers(0, 5, 8)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    before = [np.array(weight) for weight in model.trainable_weights]
    fitted = model.fit(x, y, validation_data=(x, y), epochs=2, verbose=0)
    assert np.isfinite(fitted.history["loss"]).all()
    assert np.isfinite(fitted.history["val_loss"]).all()
    for old, weight in zip(before, model.trainable_weights, strict=True):
        assert not np.array_equal(old, weight), weight.name
    evaluated = model.evaluate(x, y, verbose=0)
    assert evaluated == pytest.approx(fitted.history["val_loss"][-1], 1e-4)

    expected = model.predict(x, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    checks.assert_close(loaded.predict(x, verbose=0), expected, 1e-6)
    steps = int(model.optimizer.iterations)
    assert steps == int(loaded.optimizer.iterations) > 0

    quiet = {"verbose": False} if KERAS_3 else {}
    model.export(str(tmp_path / "exported"), **quiet)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    serve = exported.signatures["serving_default"]
    # Each Keras names a single input in its own way.
    (name,) = serve.structured_input_signature[1]
    (output,) = serve(**{name: tf.constant(x)}).values()
    checks.assert_close(output, expected, 1e-5)
