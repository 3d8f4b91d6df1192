"""Exports are the same wherever they are made, and planned for where they run.

`planning_for` stands for the device that this process has.
"""

import dataclasses
import functools

import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf import serving
from tests.support import checks
from tests.support import networks
from tests.support import timm_golden
from tests.support.networks import some_images
from tests.support.networks import vary


def resnet(spec, **changes):
    spec = dataclasses.replace(spec, **changes)
    return lambda **arguments: models.ResNet(spec, **arguments)


FAMILIES = {
    "LambdaResNet": resnet(
        networks.TINY,
        stages=("CL",),
        widths=(8,),
        strides=(1,),
        se_ratio=0.25,
    ),
    "ResNet with lambda stages": resnet(
        networks.TINY, stages=("L", "LC"), widths=(8, 8), strides=(1, 2)
    ),
    "MobileNetV2": functools.partial(
        networks.tiny_mobilenet, lambda_blocks=(2, 4)
    ),
    "timm": resnet(timm_golden.TINY),
    "attention": resnet(networks.ATTENTION, stages=("S", "A", "P")),
}


@pytest.fixture(
    scope="module",
    params=[
        *list(FAMILIES)[:-1],
        pytest.param("attention", marks=pytest.mark.once),
    ],
)
def family(request):
    """A network, images, their logits, and its export made on a CPU."""
    shape = (16, 18, 3) if request.param == "timm" else (10, 9, 3)
    model = FAMILIES[request.param](
        input_shape=shape, classes=5, classifier_activation=None
    )
    vary(model)
    images = some_images(3, *shape)
    return model, images, model(images).numpy(), serving.Inference(model)


@pytest.mark.slow
@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    "device", ["tpu", pytest.param("gpu", marks=pytest.mark.once)]
)
def test_an_export_is_the_model_wherever_it_is_made(family, device):
    model, images, expected, made_on_a_cpu = family
    with ops.planning_for(device):
        checks.assert_close(model(images), expected, 1e-4)
        folded = serving.fold_batch_norm(model)
        checks.assert_close(folded(images), expected, 1e-4)
        exported = serving.Inference(model)
    checks.assert_close(exported(images=images)["logits"], expected, 1e-4)
    assert operations(exported) == operations(made_on_a_cpu)


def operations(network):
    """Types and shapes of the operations of a network for inference."""
    graph = network._infer.graph
    return [
        (operation.type, [tensor.shape for tensor in operation.outputs])
        for operation in graph.get_operations()
    ]


@pytest.mark.slow
@pytest.mark.once
def test_an_export_is_planned_for_where_it_runs(tmp_path):
    """One lambda layer, whose plan depends on the device."""
    images = tf.keras.Input((56, 56, 3))
    x = layers.LambdaConv(16, 23, num_heads=4, use_content=False)(images)
    x = tf.keras.layers.GlobalAveragePooling2D()(x)
    model = tf.keras.Model(images, tf.keras.layers.Dense(3, "softmax")(x))

    def made_on(here, device):
        options = serving.ExportOptions(device=device)
        with ops.planning_for(here):
            return operations(serving.Inference(model, options))

    made = {device: made_on(device, device) for device in ops.DEVICES}
    assert made["cpu"] != made["tpu"] != made["gpu"]
    for device, expected in made.items():
        assert made_on("gpu", device) == expected
    types = {}
    for device in ("cpu", "tpu"):
        options = serving.ExportOptions(device=device, xla=True)
        with ops.planning_for("gpu"):
            folder = serving.export_model(
                model, tmp_path, device, options=options
            )
        recorded = serving.read_metadata(folder)["options"]
        assert recorded["device"] == device
        loaded = tf.saved_model.load(str(folder))
        graph = loaded.signatures["serving_default_xla"].graph.as_graph_def()
        types[device] = {
            node.op
            for function in graph.library.function
            for node in function.node_def
        }
        # What XLA compiles has subscripts instead of slices.
        absent = {"NoOp", "Placeholder", "Slice"}
        assert types[device] >= {kind for kind, _ in made[device]} - absent
    assert types["cpu"] != types["tpu"]
    card = folder / "assets.extra/model_card.md"
    assert "| planned for | tpu |" in card.read_text()
