"""The table of networks against the paper, and its errors."""

import dataclasses
import functools
import json
import sys

import pytest

from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.models.resnet import drop_rates
from tests.support.networks import shapes_alone

pytestmark = pytest.mark.once

RESNET_50 = specs.RESNETS["ResNet50"]
MOBILENET_V2 = specs.MOBILENETS["MobileNetV2"]
LAMBDA_MOBILENET_V2 = specs.MOBILENETS["LambdaMobileNetV2"]


@pytest.mark.parametrize("row", specs.TABLE_19, ids=lambda row: row.depth)
def test_blocks_give_the_depth_of_the_name(row):
    layers = 3 * sum(row.blocks) + 2
    # 270 and 420 are rounded names: 272 and 419 layers.
    assert abs(layers - row.depth) <= 2
    assert all(1 <= block <= row.blocks[2] for block in row.lambda_blocks_c4)


def test_hybrid_positions_of_the_paper():
    spec = specs.RESNETS["LambdaResNet50"]
    assert spec.stages == ("CCC", "CCCC", "CCLCCC", "LLL")
    c4 = specs.RESNETS["LambdaResNet152"].stages[2]
    positions = [i + 1 for i, letter in enumerate(c4) if letter == "L"]
    assert positions == [5, 10, 15, 20, 25, 30]
    assert specs.RESNETS["LambdaResNet101C4"].stages[1:] == (
        "CCCC",
        "L" * 23,
        "LLL",
    )


def test_recommendations_are_those_of_the_largest_run():
    recommended = {
        spec.name: (spec.image_size, spec.dropout_rate, spec.drop_path_rate)
        for spec in specs.RESNETS.values()
    }
    assert recommended["LambdaResNet50"] == (160, 0.2, 0.0)
    assert recommended["LambdaResNet101"] == (192, 0.2, 0.0)
    assert recommended["LambdaResNet420C4"] == (320, 0.3, 0.2)
    assert {row.depth for row in specs.TABLE_20} | {200} == {
        row.depth for row in specs.TABLE_19
    }


def test_every_row_has_a_builder():
    assert set(specs.PRESETS) <= set(models.__all__)


def test_a_spec_survives_json():
    spec = dataclasses.replace(
        RESNET_50,
        stages=("CL", "S", "X", "PA"),
        attention_scope=(3, 5),
    )
    fields = json.loads(json.dumps(dataclasses.asdict(spec)))
    assert specs.ResNetSpec(**fields) == spec


def test_total_stride():
    assert RESNET_50.stride == 32
    assert specs.RESNETS["LambdaResNet152"].stride == 32
    assert specs.RESNETS["LambdaResNetSmall"].stride == 4
    assert MOBILENET_V2.stride == 32


def test_drop_path_schedules():
    spec = dataclasses.replace(
        RESNET_50,
        stages=("CC", "C", "C", "C"),
        drop_path_rate=0.5,
    )
    assert drop_rates(spec) == pytest.approx([0.2, 0.2, 0.3, 0.4, 0.5])
    spec = dataclasses.replace(spec, drop_path_schedule="block")
    assert drop_rates(spec) == pytest.approx([0, 0.125, 0.25, 0.375, 0.5])
    spec = dataclasses.replace(spec, drop_path_schedule="constant")
    assert drop_rates(spec) == pytest.approx([0.5] * 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": ("CCC", "CZC", "C", "L")}, "`stages` must hold"),
        ({"stages": ("CCC", "", "C", "L")}, "`stages` must hold"),
        ({"widths": (64, 128)}, "`widths` must have as many"),
        ({"stem_strides": (2, 1)}, "`stem_strides` must have as many"),
        ({"shortcut": "identity"}, "`shortcut` must be one of"),
        ({"padding": "valid"}, "`padding` must be one of"),
        ({"attention_heads": 0}, "`attention_heads` must be a positive"),
        ({"attention_key_dim": 1.5}, "`attention_key_dim` must be int"),
        ({"attention_scope": 4}, "`attention_scope` must be odd"),
        ({"attention_scope": None}, "`attention_scope`.*letter A"),
        ({"attention_pool": -1}, "`attention_pool` must be a positive"),
        ({"parallel_keys": 1.0}, "`parallel_keys` must be a number in"),
        ({"parallel_values": -0.1}, "`parallel_values` must be a number in"),
        ({"drop_path_schedule": "cubic"}, "`drop_path_schedule` must be"),
        ({"se_ratio": float("nan")}, "`se_ratio` must be a number"),
        ({"image_mean": (0.0, float("nan"), 1.0)}, "`image_mean` must be"),
        ({"activation": ""}, "`activation` must not be empty"),
        ({"drop_path": 0.1}, "Did you mean 'drop_path_rate'"),
        ({"qwerty": 1}, "`qwerty` is not an argument of ResNet50"),
    ],
)
def test_wrong_specs(changes, message):
    with pytest.raises(ValueError, match=message):
        specs.replace(RESNET_50, changes)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "ResNet50",
            {"scope": 7},
            r"`scope`.* L \(lambda layer\)",
        ),
        (
            "ResNet50",
            {"num_heads": 2, "key_dim": 8},
            "`num_heads` and `key_dim`",
        ),
        ("ResNet50", {"share_embeddings": True}, "of its `pattern`"),
        ("ResNet50", {"implementation": "einsum"}, "`implementation`"),
        ("ResNet50", {"attention_scope": 5}, r"letters S \("),
        ("ResNet50", {"stages": "LLLL", "parallel_keys": 0.1}, r"letters P \("),
        (
            "ResNet50",
            {"stages": "PPPP", "attention_key_dim": 8},
            "letters A .*, S .*, X ",
        ),
        ("ResNet50", {"se_stages": (2,)}, "`se_ratio` above 0"),
        ("ResNetRS50", {"se_stages": (6,)}, "`se_ratio` above 0"),
        ("ResNetRS50", {"drop_path_schedule": "block"}, "paths to drop"),
        ("LambdaResNet50", {"use_position": False, "scope": 7}, "position"),
        (
            "LambdaResNet50",
            {"use_content": False, "key_normalization": "l2"},
            "content lambdas",
        ),
        ("LambdaResNet50", {"strides": (1,) * 4, "lambda_pool": 2}, "strides"),
        ("ResNetRS50", {"strides": (1,) * 4, "shortcut": "conv"}, "strides"),
        ("LambdaResNet50", {"attention_pool": 3}, "that strides of .*A .* P "),
        ("MobileNetV2", {"key_dim": 8}, "a block in `lambda_blocks`"),
    ],
)
def test_what_changes_nothing_is_refused(name, changes, message):
    if "stages" in changes:
        changes = {**changes, "stages": tuple(changes["stages"])}
    with pytest.raises(ValueError, match="would change nothing in") as info:
        models.build(name, **changes)
    assert info.match(message)


def another(spec, name):
    """A value of an attribute that the spec does not have."""
    value = getattr(spec, name)
    if isinstance(value, bool):
        return not value
    if name in ("strides", "stem_strides"):
        return tuple(3 - strides for strides in value)
    others = {
        "activation": "gelu",
        "padding": "same" if value == "symmetric" else "symmetric",
        "shortcut": "conv" if value == "pool" else "pool",
        "drop_path_schedule": "constant",
        "key_normalization": "l2",
        "query_normalization": "softmax",
        "scope": 5,
        "kernel_size": 7,
        "num_heads": 2,
        "attention_heads": 4,
        "attention_key_dim": 12,
        "attention_scope": 5,
        "se_stages": (3,),
        "lambda_blocks": (1, 3),
        "image_mean": (1.0, 2.0, 3.0),
        "image_std": (1.0, 2.0, 3.0),
    }
    if name in others:
        return others[name]
    if name in ("stages", "rows"):
        return (value[-1], *value[1:-1], value[0])
    if isinstance(value, tuple):  # Of numbers of channels.
        return tuple(2 * channels for channels in value)
    return value / 2 + 0.3 if isinstance(value, float) else value + 32


def attributes(spec):
    return [field.name for field in dataclasses.fields(spec)][1:]


@pytest.mark.parametrize("name", specs.PRESETS)
def test_every_attribute_without_effect_is_refused(name):
    spec = specs.PRESETS[name].spec
    for attribute in spec.unused():
        change = {attribute: another(spec, attribute)}
        with pytest.raises(ValueError, match=f"`{attribute}` would change"):
            models.build(name, **change)
        # What only says what is the case is no mistake.
        assert specs.replace(spec, {attribute: getattr(spec, attribute)})


def reduced(spec):
    """A small network that reads and lacks the same attributes."""
    if isinstance(spec, specs.MobileNetSpec):
        block = bool(spec.lambda_blocks)
        return dataclasses.replace(
            spec, rows=spec.rows[:2], lambda_blocks=(2,) * block
        )
    kinds = {}
    for blocks, strides in zip(spec.stages, spec.strides, strict=True):
        letters = blocks[0] + "".join(sorted(set(blocks[1:])))
        kinds[letters, strides] = None
    stages, strides = zip(*kinds, strict=True)
    return dataclasses.replace(
        spec,
        stages=stages,
        strides=strides,
        widths=(64,) * len(stages),
        image_size=64,
    )


FAMILIES = [reduced(preset.spec) for preset in specs.PRESETS.values()]
FAMILIES += [
    dataclasses.replace(RESNET_50, stages=("C", "C", letter, letter))
    for letter in "ASXP"
]
# One network for those that differ in name and rates alone.
FAMILIES = {(tuple(x.unused()), getattr(x, "stages", 0)): x for x in FAMILIES}


def recorded(spec, read):
    """A spec that notes which attributes the networks ask for."""

    class Recorded(type(spec)):
        def __getattribute__(self, name):
            if "/lambdanet_tf/models/" in sys._getframe(1).f_code.co_filename:
                read.add(name)
            return super().__getattribute__(name)

    return Recorded(**vars(spec))


def build(spec):
    kind = isinstance(spec, specs.ResNetSpec)
    with shapes_alone():
        return (models.ResNet if kind else models.MobileNet)(spec)


@pytest.mark.slow
@pytest.mark.representatives(6)
@pytest.mark.parametrize("spec", FAMILIES.values(), ids=lambda spec: spec.name)
def test_every_attribute_is_read_or_refused(spec):
    read = set()
    build(recorded(spec, read))
    assert set(attributes(spec)) <= read | spec.unused().keys()


def network_of(letter):
    """Two stages of the blocks of a letter, with all that can surround them."""
    return dataclasses.replace(
        specs.RESNETS["LambdaResNet152"],
        stages=(letter, letter * 2),
        strides=(1, 2),
        widths=(16, 512),  # So wide that shares of it are not rounded.
        image_size=64,
        stem_pool=True,
    )


def readers():
    """Every attribute with a network that reads it."""
    for name in attributes(RESNET_50):
        for letter, block in specs.LETTERS.items():
            if name in (*block.attributes, block.pool):
                yield name, network_of(letter)
                break
        else:
            yield name, network_of("C")
    for name in attributes(MOBILENET_V2):
        yield name, reduced(LAMBDA_MOBILENET_V2)


@functools.cache
def described(spec):
    return str(build(spec).get_config())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "spec"), [*readers()])
def test_an_attribute_that_is_read_changes_the_network(name, spec):
    changed = dataclasses.replace(spec, **{name: another(spec, name)})
    assert described(spec) != described(changed)


WRONG = [
    (specs.PRESETS["ResNet50"], "parameters", 0),
    (specs.PRESETS["ResNet50"], "evaluation_crop", 0.0),
    (specs.PRESETS["ResNet50"], "evaluation_crop", 1.5),
    (specs.PRESETS["ResNet50"], "interpolation", "nearest"),
    (specs.PRESETS["ResNet50"], "spec", "ResNet50"),
    (MOBILENET_V2, "lambda_blocks", (0,)),
    (MOBILENET_V2, "lambda_blocks", (18,)),
    (MOBILENET_V2, "lambda_blocks", ("10",)),
]


@pytest.mark.representatives(len(WRONG))
@pytest.mark.parametrize(("row", "field", "value"), WRONG)
def test_wrong_rows(row, field, value):
    with pytest.raises(ValueError, match=f"`{field}` must be"):
        dataclasses.replace(row, **{field: value})


@pytest.mark.parametrize(
    "row",
    [
        specs.PRESETS["LambdaResNet50"],
        specs.RESNETS["LambdaResNet50"],
        LAMBDA_MOBILENET_V2,
        LAMBDA_MOBILENET_V2.rows[0],
    ],
    ids=lambda row: type(row).__name__,
)
def test_every_field_is_validated(row):
    for field in dataclasses.fields(row):
        for wrong in (object(), -1.5, (0,)):
            with pytest.raises(ValueError, match=f"`{field.name}`"):
                dataclasses.replace(row, **{field.name: wrong})


@pytest.mark.parametrize("pattern", ["CCC", "CCLZ", "ccll"])
def test_wrong_patterns(pattern):
    with pytest.raises(ValueError, match="`pattern` must hold 4 letters"):
        specs.uniform_stages(pattern, (3, 4, 6, 3))
