"""The language model of the examples: both ways to generate, and resuming."""

import pytest
import tensorflow as tf

from examples import language_model
from tests.support import checks
from tests.support import streams

pytestmark = [pytest.mark.once, pytest.mark.slow]

# Half the blocks and a quarter of the context: what is traced takes long.
SMALL = {"BLOCKS": 2, "CONTEXT": 64, "BATCH": 2}
SETTINGS = {**language_model.SHORT, "contexts": (64,)}


def test_both_generate_as_the_whole_call(tmp_path, monkeypatch, rng):
    for name, value in {**SMALL, "SHORT": SETTINGS}.items():
        monkeypatch.setattr(language_model, name, value)
    results = language_model.measure(tmp_path, short=True)
    assert language_model.measure(tmp_path, short=True) == results
    corpus, _ = language_model.read_corpus()
    restored, lines = {}, []
    given = corpus, tmp_path, SETTINGS, lines.append
    for kind in language_model.KINDS:
        restored[kind], _ = language_model.train(kind, *given)
    assert lines == []  # Nothing was trained anew.
    tokens = tf.constant(rng.integers(0, 256, [1, 90]), tf.int32)
    streams.assert_streams(restored["lambda"], tokens, [70, 1, 19], 1e-4)

    model = restored["attention"]
    cache = language_model.AttentionCache(model, 100)
    outputs = [
        cache.step(tokens[:, i : i + 1], tf.constant(i)) for i in range(90)
    ]
    checks.assert_close(tf.concat(outputs, 1), model(tokens), 1e-4)
