"""Weights by name: round trips, between the Kerases, and clear refusals."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from tests.support import checks
from tests.support.networks import arrays
from tests.support.networks import assert_weights
from tests.support.networks import some_images
from tests.support.networks import tiny
from tests.support.networks import vary

pytestmark = pytest.mark.every_lane

KERAS = tf.keras.layers

# Shared embeddings, squeeze-and-excitation, a hybrid stage.
ARGUMENTS = {
    "stages": ("LL", "CLL", "L"),
    "share_embeddings": True,
    "se_ratio": 0.5,
}


def network(seed=0, **arguments):
    model = tiny(**ARGUMENTS | arguments)
    vary(model, seed)
    return model


def saved(tmp_path, **arguments):
    path = str(tmp_path / "weights.npz")
    model = network(**arguments)
    models.save_weights(model, path)
    return model, path


def test_round_trip(tmp_path):
    model, path = saved(tmp_path)
    restored = network(seed=1)
    models.load_weights(restored, path)
    assert_weights(restored, model)
    assert_weights(tiny(**ARGUMENTS, weights=path), model)
    assert os.listdir(tmp_path) == ["weights.npz"]  # Nothing half-written.
    with np.load(path, allow_pickle=False) as archive:
        header = json.loads(str(archive["format"]))
        kernel = archive["stem_conv1/kernel"]
        # Names are an address book, the same in every release.
        assert {
            "stage2_block1_lambda/value_norm/moving_variance",
            "stage2_embedding/embeddings",
            "stage3_block1_se/reduce/bias",
            "stage4_block1_lambda/position_embedding/embeddings",
            "predictions/bias",
        } <= {*archive}
    assert header == {"version": 1, "model": "tiny"}
    np.testing.assert_array_equal(kernel, arrays(model)["stem_conv1/kernel"])


def test_bfloat16_is_saved_as_float32(tmp_path):
    layer = KERAS.Dense(1, dtype="bfloat16", name="dense")
    model = tf.keras.Sequential([tf.keras.Input((2,)), layer])
    models.save_weights(model, tmp_path / "weights.npz")
    assert np.load(tmp_path / "weights.npz")["dense/kernel"].dtype == np.float32


@pytest.mark.slow
def test_parts_of_a_file(tmp_path):
    model, path = saved(tmp_path)
    assert_weights(tiny(**ARGUMENTS, include_top=False, weights=path), model)
    assert_weights(tiny(**ARGUMENTS, endpoints=("c2",), weights=path), model)
    other = network(seed=1)
    models.load_weights(other, path, skip=("stage4", "stem"))
    assert_weights(other, model, but=("stage4", "stem"))
    # The file of a run stands for its folder.
    os.rename(path, tmp_path / models.RUN_WEIGHTS)
    assert_weights(tiny(**ARGUMENTS, weights=tmp_path), model)


@pytest.mark.slow
def test_files_of_other_networks(tmp_path):
    model, path = saved(tmp_path)
    other = network(seed=1, stages=("LL", "CLLL", "L"), scope=7)
    before = arrays(other)
    text = "does not fit 'tiny'.*missing in the file.*block4.*of another shape"
    with pytest.raises(ValueError, match=text):
        models.load_weights(other, path)
    assert_weights(other, before)
    # Another number of classes.
    other = network(seed=1, classes=3)
    with pytest.raises(ValueError, match="Only the classifier differs") as info:
        models.load_weights(other, path)
    assert "(64, 5) in the file and (64, 3) in the model" in str(info.value)
    fresh = network(seed=1, classes=3)
    skipped = models.load_weights(other, path, skip_mismatch=True)
    assert skipped == ("predictions/kernel", "predictions/bias")
    assert_weights(other, fresh, but=["st"])
    below = tf.keras.Model(other.input, other.get_layer("pool").output)
    assert_weights(below, model)


def test_what_is_no_file_or_no_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("foreign.npz", kernel=np.zeros(3))
    np.savez("newer.npz", format=np.array('{"version": 2, "model": "tiny"}'))
    pathlib.Path("model.pth").write_bytes(b"\x80\x02}q\x00.")
    _, path = saved(tmp_path)
    late = tf.keras.Sequential([KERAS.Dense(3, name="late")])
    save, load = models.save_weights, models.load_weights
    for call, model, file, message in (
        (load, None, "foreign.npz", "is not, or"),
        (load, None, "newer.npz", "has version 2"),
        (load, None, tmp_path, "No such file: .*best.weights.npz"),
        (load, None, "model.pth", "or is damaged.*a file of Keras"),
        (save, None, "weights.h5", "must end in '.npz'"),
        (load, "x", path, "`model` must be a built `tf.keras` model"),
        (load, late, path, "call it once"),
    ):
        with pytest.raises(ValueError, match=message):
            call(model, file)


_OTHER_KERAS = f"""
import sys
import numpy as np
from lambdanet_tf import models
from tests.support.networks import some_images, tiny

back, path = sys.argv[1:]
model = tiny(**{ARGUMENTS}, weights=path)
np.save(path + ".npy", np.asarray(model(some_images(2, 16, 16, 3))))
models.save_weights(model, back)
"""


@pytest.mark.slow
@pytest.mark.once
def test_files_of_the_other_keras(tmp_path):
    """There and back again."""
    pytest.importorskip("tf_keras")
    model, path = saved(tmp_path)
    back = str(tmp_path / "back.npz")
    subprocess.run(
        [sys.executable, "-c", _OTHER_KERAS, back, path],
        check=True,
        cwd=pathlib.Path(__file__).parents[2],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
    )
    expected = model(some_images(2, 16, 16, 3))
    checks.assert_close(np.load(f"{path}.npy"), expected, 1e-5)
    assert_weights(tiny(**ARGUMENTS, weights=back), model)
