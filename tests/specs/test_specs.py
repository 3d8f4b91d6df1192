"""The table of networks against the paper, and its errors."""

import dataclasses
import json

import pytest

from lambdanet_tf import specs
from lambdanet_tf.models.resnet import drop_rates

pytestmark = pytest.mark.once

RESNET_50 = specs.RESNETS["ResNet50"]
MOBILENET_V2 = specs.MOBILENETS["MobileNetV2"]
LAMBDA_MOBILENET = specs.MOBILENETS["LambdaMobileNetV2"]


def test_hybrid_positions_of_the_paper():
    spec = specs.RESNETS["LambdaResNet50"]
    assert spec.stages == ("CCC", "CCCC", "CCLCCC", "LLL")
    c4 = specs.RESNETS["LambdaResNet152"].stages[2]
    positions = [i + 1 for i, letter in enumerate(c4) if letter == "L"]
    assert positions == [5, 10, 15, 20, 25, 30]
    stages = specs.RESNETS["LambdaResNet101C4"].stages
    assert stages[1:] == ("CCCC", "L" * 23, "LLL")


def test_a_spec_survives_json():
    changes = {"stages": ("CL", "S", "X", "PA"), "attention_scope": (3, 5)}
    spec = dataclasses.replace(RESNET_50, **changes)
    fields = json.loads(json.dumps(dataclasses.asdict(spec)))
    assert specs.ResNetSpec(**fields) == spec


def test_drop_path_schedules():
    changes = {"stages": ("CC", "C", "C", "C"), "drop_path_rate": 0.5}
    spec = dataclasses.replace(RESNET_50, **changes)
    assert drop_rates(spec) == pytest.approx([0.2, 0.2, 0.3, 0.4, 0.5])
    spec = dataclasses.replace(spec, drop_path_schedule="block")
    assert drop_rates(spec) == pytest.approx([0, 0.125, 0.25, 0.375, 0.5])
    spec = dataclasses.replace(spec, drop_path_schedule="constant")
    assert drop_rates(spec) == pytest.approx([0.5] * 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_scope": None}, "`attention_scope` must be int"),
        ({"image_mean": (0.0, float("nan"), 1.0)}, "`image_mean` must be"),
        ({"activation": ""}, "`activation` must be"),
    ],
)
def test_wrong_specs(changes, message):
    with pytest.raises(ValueError, match=message):
        specs.replace(RESNET_50, changes)


@pytest.mark.parametrize(
    "row",
    [
        specs.RESNETS["LambdaResNet50"],
        LAMBDA_MOBILENET,
        LAMBDA_MOBILENET.rows[0],
    ],
    ids=lambda row: type(row).__name__,
)
def test_every_field_is_validated(row):
    for field in dataclasses.fields(row):
        for wrong in (object(), -1.5, (0,)):
            with pytest.raises(ValueError, match=f"`{field.name}`"):
                dataclasses.replace(row, **{field.name: wrong})
