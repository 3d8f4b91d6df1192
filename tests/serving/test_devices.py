"""Exports are the same wherever they are made, and planned for where they run.

`planning_for` stands for the device that this process has.
"""

import dataclasses
import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf import serving
from lambdanet_tf.environment import KERAS_3
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
    made = {}
    for device in ops.DEVICES:
        with ops.planning_for(device):
            made[device] = serving.Inference(
                model, serving.ExportOptions(device=device)
            )
    assert operations(made["cpu"]) != operations(made["tpu"])
    assert operations(made["tpu"]) != operations(made["gpu"])
    for device, expected in made.items():
        with ops.planning_for("gpu"):
            network = serving.Inference(
                model, serving.ExportOptions(device=device)
            )
        assert operations(network) == operations(expected)
    folders, types = {}, {}
    for device in ("cpu", "tpu"):
        options = serving.ExportOptions(device=device, xla=True)
        with ops.planning_for("gpu"):
            folders[device] = serving.export_model(
                model, tmp_path, device, options=options
            )
        recorded = serving.read_metadata(folders[device])["options"]
        assert recorded["device"] == device
        loaded = tf.saved_model.load(str(folders[device]))
        graph = loaded.signatures["serving_default_xla"].graph.as_graph_def()
        types[device] = {
            node.op
            for function in graph.library.function
            for node in function.node_def
        }
        assert types[device] >= {x for x, _ in operations(made[device])} - {
            "NoOp",
            "Placeholder",
            "Slice",  # what XLA compiles has subscripts instead
        }
    assert types["cpu"] != types["tpu"]
    card = folders["tpu"] / "assets.extra/model_card.md"
    assert "| planned for | tpu |" in card.read_text()


@pytest.mark.parametrize("device", ["TPU", "cpu:0", None, ""])
def test_a_device_without_plans(device):
    allowed = "str" if device is None else "one of .*'cpu'"
    with pytest.raises(ValueError, match=f"`device` must be {allowed}"):
        serving.ExportOptions(device=device)


# Folding: what stands in a model that somebody made or changed.


def assert_folds(model, inputs):
    """On every device the model is the same function, folded or not."""
    expected = model(inputs)
    assert np.abs(expected).max() > 0
    folded = serving.fold_batch_norm(model)
    for device in ("cpu", "tpu"):
        with ops.planning_for(device):
            checks.assert_close(model(inputs), expected, 1e-5)
            checks.assert_close(folded(inputs), expected, 1e-5)


class Squared(tf.keras.layers.Conv2D):
    """Somebody's convolution, by the squares of its kernel."""

    def call(self, inputs):
        return tf.nn.conv2d(inputs, tf.convert_to_tensor(self.kernel) ** 2, 1,
                            "VALID")  # fmt: skip


Norm = tf.keras.layers.BatchNormalization
LINEAR = {
    "subclass": lambda: [Squared(4, 3, use_bias=False), Norm()],
    "transposed": lambda: [tf.keras.layers.Conv2DTranspose(3, 3), Norm()],
    "another axis": lambda: [tf.keras.layers.Conv2D(4, 3), Norm(axis=1)],
    "grouped": lambda: [tf.keras.layers.Conv2D(6, 3, groups=3), Norm()],
    "separable": lambda: [tf.keras.layers.SeparableConv2D(4, 3), Norm()],
    "ours": lambda: [
        tf.keras.layers.Conv2D(4, 3),
        layers.BatchNormalization(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_what_is_before_a_norm(name, rng):
    x = images = tf.keras.Input((6, 7, 3))
    for layer in LINEAR[name]():
        x = layer(x)
    model = tf.keras.Model(images, x)
    vary(model)
    assert_folds(model, rng.normal(size=(2, 6, 7, 3)).astype("f4"))


def test_masks_pass_a_folded_norm(rng):
    tokens = tf.keras.Input((7,), dtype="int32")
    x = tf.keras.layers.Embedding(5, 6, mask_zero=True)(tokens)
    x = Norm()(tf.keras.layers.Dense(6)(x))
    x = layers.LambdaLayer(num_heads=2, key_dim=3)(x)
    model = tf.keras.Model(tokens, x)
    vary(model)
    assert_folds(
        model, np.array([[1, 2, 3, 4, 1, 0, 0], [3, 0, 0, 0, 0, 0, 0]])
    )


def a_network(middle):
    x = images = tf.keras.Input((6, 7, 3))
    x = Norm()(tf.keras.layers.Conv2D(8, 1)(x))
    x = middle(x)
    x = tf.keras.layers.GlobalAveragePooling2D()(x)
    model = tf.keras.Model(images, tf.keras.layers.Dense(5)(x))
    vary(model)
    return model


MIDDLES = {
    "lambda": lambda: layers.LambdaLayer(num_heads=2, key_dim=3),
    "convolution": lambda: layers.LambdaConv(8, 3, num_heads=2, key_dim=3),
    "attention": lambda: layers.RelativeAttention(num_heads=2),
}


# Keras 2 has neither of the first, Keras 3 replaces no sublayer.
CHANGES = ("low rank", "quantized") if KERAS_3 else ("replaced",)


def change(model, how, rng):
    if how == "quantized":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of layers that cannot
            model.quantize("int8")
    elif how == "low rank":
        kinds = tf.keras.layers.Dense, tf.keras.layers.Conv2D
        for layer in model._flatten_layers():
            if isinstance(layer, kinds):
                layer.enable_lora(2)
                shape = layer.lora_kernel_b.shape
                layer.lora_kernel_b.assign(rng.normal(size=shape))
    else:
        layer = model.layers[3]
        units, channels = layer.key.units, layer.key.kernel.shape[0]
        layer.key = tf.keras.layers.Dense(units, "tanh", name="mine")
        layer.key.build((None, None, channels))


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.parametrize("how", CHANGES)
def test_networks_with_other_projections(how, middle, rng):
    model = a_network(MIDDLES[middle]())
    images = rng.uniform(0, 255, (2, 6, 7, 3)).astype(np.float32)
    before = model(images)
    change(model, how, rng)
    after = model(images)
    assert np.abs(after - before).max() > 1e-4 * np.abs(before).max()
    assert_folds(model, images)
    checks.assert_close(
        serving.Inference(model)(images=images)["logits"],
        after,
        1e-5,
    )
