"""What was said of a layer holds for its copies: files, clones, pickles.

Every public layer goes through every way that Keras has to make another
layer or model of one.
"""

import numpy as np
import pytest

from tests.support import cases
from tests.support import checks

# A row of the table for every public layer.
ONE_OF_EACH = {case.layer: case for case in reversed(cases.CASES)}.values()
every_layer = pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda x: x.name)


def layer_of(model, layer_type):
    return next(x for x in model.layers if isinstance(x, layer_type))


def trains(model, data):
    """Which parts of a model train: none moves in a step if none trains."""
    before = model.get_weights()
    model(data, training=True)
    pairs = zip(before, model.get_weights(), strict=True)
    moved = sum(not np.array_equal(*pair) for pair in pairs)
    model.set_weights(before)
    return len(model.trainable_weights), moved


@pytest.mark.slow
@every_layer
def test_frozen_layers_stay_frozen(case, tmp_path):
    data = case.data(batch=2)
    frozen = {"in the constructor": case.model(trainable=False)}
    layer = case.make()
    layer.trainable = False
    frozen["before it was built"] = case.model(layer)
    model = case.model()
    if model.trainable_weights:
        assert trains(model, data) != (0, 0)
    layer_of(model, case.layer).trainable = False
    frozen["once built"] = model
    for way, copied in checks.COPIES.items():
        frozen[way] = copied(model, tmp_path)
    for when, model in frozen.items():
        assert trains(model, data) == (0, 0), when
        layer = layer_of(model, case.layer)
        assert not layer.trainable, when
        layer.trainable = True
        assert len(model.trainable_weights) == case.trainable, when
