"""The language model of the examples: both ways to generate, and resuming."""

import numpy as np
import pytest
import tensorflow as tf

from examples import language_model
from lambdanet_tf import streaming
from tests.support import checks

pytestmark = [pytest.mark.once, pytest.mark.slow]


# Half the blocks and a quarter of the context: what is traced takes long.
SMALL = {"BLOCKS": 2, "CONTEXT": 64, "BATCH": 2}
SETTINGS = {**language_model.SHORT, "contexts": (64,)}


@pytest.fixture(scope="module")
def sizes():
    """The parameters of the models as they are, by kind."""
    return {
        kind: language_model.build(kind).count_params()
        for kind in language_model.KINDS
    }


@pytest.fixture(scope="module")
def run(sizes, tmp_path_factory):
    """The folder, the results and the printed lines of a short run."""
    folder, lines = tmp_path_factory.mktemp("language_model"), []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SMALL, "SHORT": SETTINGS}.items():
            patch.setattr(language_model, name, value)
        results = language_model.measure(folder, True, lines.append)
        yield folder, results, lines


@pytest.fixture(scope="module")
def restored(run):
    """The models of that run, by kind."""
    corpus, _ = language_model.read_corpus()
    found, lines = {}, []
    for kind in language_model.KINDS:
        found[kind], _ = language_model.train(
            kind, corpus, run[0], SETTINGS, lines.append
        )
    assert lines == []  # Nothing was trained anew.
    return found


def some_bytes(count):
    rng = np.random.default_rng(0)
    return tf.constant(rng.integers(0, 256, [1, count]), tf.int32)


def test_models_are_of_one_size_and_measured(sizes, run):
    assert max(sizes.values()) < 1.05 * min(sizes.values())
    folder, results, lines = run
    assert len(lines) == 2
    assert language_model.measure(folder, short=True) == results
    assert language_model.table(results)
    figure = language_model.picture(results)
    assert [len(axes.lines) for axes in figure.axes] == [2, 2]


def test_both_generate_as_the_whole_call(restored):
    tokens = some_bytes(90)
    model = restored["lambda"]
    state, outputs = streaming.initial_state(model, 1), []
    for begin, end in ((0, 70), (70, 71), (71, 90)):
        logits, state = streaming.step(model, tokens[:, begin:end], state)
        outputs.append(logits)
    checks.assert_close(tf.concat(outputs, 1), model(tokens), 1e-4)

    model = restored["attention"]
    cache = language_model.AttentionCache(model, 100)
    outputs = [
        cache.step(tokens[:, i : i + 1], tf.constant(i)) for i in range(90)
    ]
    checks.assert_close(tf.concat(outputs, 1), model(tokens), 1e-4)


@pytest.mark.parametrize("kind", language_model.KINDS)
def test_no_model_sees_the_future(kind, restored):
    model, tokens = restored[kind], some_bytes(60)
    changed = tf.concat([tokens[:, :30], 255 - tokens[:, 30:]], 1)
    before, after = model(tokens), model(changed)
    checks.assert_close(after[:, :30], before[:, :30], 1e-5)
    checks.assert_far(after[:, 30:], before[:, 30:], 1e-2)


def test_the_export_of_texts_is_the_model(run, restored):
    folder = run[0] / "served" / "language_model" / "1"
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    model, tokens = restored["lambda"], some_bytes(77)
    checks.assert_close(served(tokens=tokens)["logits"], model(tokens), 1e-4)


def test_the_export_generates_what_the_model_does(run, restored):
    folder, model = run[0], restored["lambda"]
    text = language_model.generate(folder / "exported" / "1", b"def ", 6)
    assert text.startswith(b"def ")
    assert len(text) == 10
    signatures = tf.saved_model.load(str(folder / "exported" / "1")).signatures
    state = signatures["initial_state"](batch_size=tf.constant(1))
    for place in range(len(text)):
        tokens = tf.constant([[text[place]]])
        state = dict(signatures["step"](inputs=tokens, **state))
        logits = state.pop("outputs")
    whole = model(tf.constant([list(text)]))
    checks.assert_close(logits, whole[:, -1:], 1e-4)
    again = language_model.generate(folder / "exported" / "1", b"def ", 6)
    assert again == text
