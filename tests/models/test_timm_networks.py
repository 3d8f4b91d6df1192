"""timm's networks: its outputs, its names, and its weights there and back."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.models.timm import weight_names as timm_names
from lambdanet_tf.models.timm.expressible import check_expressible
from tests.support import checks
from tests.support import timm_golden
from tests.support.networks import arrays
from tests.support.networks import vary
from tests.support.timm_golden import EXPRESSIBLE
from tests.support.timm_golden import TINY


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", timm_golden.TIMM_NAMES)
def test_outputs_are_those_of_timm(name):
    golden = timm_golden.outputs(name)
    model = timm_golden.network(name)
    stages = enumerate(specs.RESNETS[name].stages, start=2)
    ends = [f"stage{n}_block{len(letters)}_act" for n, letters in stages]
    maps = [model.get_layer(end).output for end in ("stem_pool", *ends)]
    probe = tf.keras.Model(model.input, [*maps, model.output])
    *maps, logits = probe(timm_golden.image(*golden["hw"]))
    checks.assert_close(logits, golden["logits"], 1e-5)
    means = [golden["stem"]] + [golden[f"stage{i}_mean"] for i in range(4)]
    for features, mean in zip(maps, means, strict=True):
        checks.assert_close(np.mean(features, (1, 2)), mean, 1e-5)


def tiny(variant):
    spec = specs.replace(TINY, EXPRESSIBLE[variant])
    return spec, models.ResNet(spec, input_shape=(32, 32, 3), classes=7)


@pytest.mark.slow
@pytest.mark.representatives(2)
@pytest.mark.parametrize("variant", EXPRESSIBLE)
def test_there_and_back_keeps_every_bit(variant):
    spec, model = tiny(variant)
    vary(model)
    ours = arrays(model)
    tensors = timm_golden.tensors(spec, classes=7, image_size=32)
    state = timm_names.to_timm(tensors, ours, "ours")
    back = timm_names.from_timm(tensors, state, "theirs")
    shapes = [(tensor.key, tensor.shape) for tensor in tensors]
    assert [(key, x.shape) for key, x in state.items()] == shapes
    assert set(back) == set(ours)
    for name, array in ours.items():
        assert back[name].tobytes() == array.tobytes(), name
        assert back[name].shape == array.shape


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"se_ratio": 0.25, "se_stages": (3,)}, "squeeze-and-excitation"),
        ({"stages": ("C", "LA", "L")}, "attention"),
        ({"padding": "same"}, "padding other than 'symmetric'"),
        ({"share_embeddings": True}, "shared embeddings"),
        ({"intra_depth": 2}, "intra_depth above 1"),
        ({"scope": None}, "a bias of a global scope"),
    ],
)
def test_what_timm_cannot_express_is_refused(changes, reason):
    spec = specs.replace(TINY, changes)
    with pytest.raises(ValueError, match=f"cannot express tiny: .*{reason}"):
        timm_names.timm_tensors(spec)


def test_other_networks_are_refused():
    networks = {**specs.MOBILENETS, **specs.RESNETS}
    for name in networks.keys() - {*timm_golden.TIMM_NAMES}:
        with pytest.raises(ValueError, match=f"cannot express {name}"):
            check_expressible(networks[name])


def test_state_dicts_that_do_not_fit():
    spec = specs.replace(TINY, EXPRESSIBLE["no_bias"])
    tensors = timm_golden.tensors(spec, classes=7, image_size=32)
    state = timm_golden.state_dict(spec, classes=7, image_size=32)
    key = "stages.1.0.self_attn.qkv.weight"
    counter = "stages.1.0.post_attn.num_batches_tracked"
    renamed = {k: array for k, array in state.items() if k != key}
    renamed |= {"a": state[key], "b": state[key]}
    for wrong, message in (
        (renamed, f"1 missing in the file: {key}.* 2 unexpected .*: a, b"),
        ({**state, key: state[key][:-1]}, rf"{key} is \(19, 16, 1, 1\)"),
        ({**state, key: state[key].astype(int)}, "floats.* of int64"),
        ({**state, counter: np.float32(0)}, "integers.* of float32"),
        (state, "conv_lambda.bias of theirs is not zero"),
    ):
        with pytest.raises(ValueError, match=message):
            timm_names.from_timm(tensors, wrong, "theirs")


def test_the_bias_that_timm_always_has_is_zero_on_the_way_back():
    spec, model = tiny("no_bias")
    tensors = timm_names.timm_tensors(spec)
    state = timm_names.to_timm(tensors, arrays(model), "ours")
    biases = [a for key, a in state.items() if key.endswith("lambda.bias")]
    assert len(biases) == 2
    assert all(a.shape == (4,) and not np.any(a) for a in biases)
