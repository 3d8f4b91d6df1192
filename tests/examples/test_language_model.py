"""The language model of the examples: it learns, streams and writes."""

import pytest
import tensorflow as tf

from examples import language_model
from tests.support import streams

pytestmark = [pytest.mark.once, pytest.mark.slow]

# Half the blocks and a quarter of the context: what is traced takes long.
SMALL = {"BLOCKS": 2, "CONTEXT": 64, "BATCH": 2, "HELD_OUT": 2}


def test_it_streams_and_writes(tmp_path, monkeypatch, rng, capsys):
    for name, value in SMALL.items():
        monkeypatch.setattr(language_model, name, value)
    language_model.main(["--folder", str(tmp_path), "--steps", "2"])
    printed = capsys.readouterr().out
    assert "bits a byte" in printed
    assert "def read_" in printed
    tokens = tf.constant(rng.integers(0, 256, [1, 90]), tf.int32)
    model = language_model.build()
    streams.assert_streams(model, tokens, [70, 1, 19], 1e-4)
