"""Wrong arguments and shapes: `ValueError`, with the argument and the numbers.

Each row names what the message must contain; a message that does not help is
a failure too.
"""

import functools
import inspect
import re

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf import specs
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers import LambdaLayer

_SIZE = {"filters": 8, "num_heads": 2, "key_dim": 3}
# What a layer is given unless a row says otherwise.
USUAL = {
    "LambdaLayer": _SIZE,
    "LambdaConv": {**_SIZE, "kernel_size": 3},
    "RelativeAttention": _SIZE,
    "RelativePositionEmbedding": {"key_dim": 3},
    "Dropout": {"rate": 0.1},
    "StochasticDepth": {"rate": 0.1},
}


def made(layer, **arguments):
    return getattr(layers, layer)(**{**USUAL.get(layer, {}), **arguments})


def refused(*parts):
    """Expects an error that says these patterns and shapes, in this order."""
    patterns = [x if isinstance(x, str) else re.escape(str(x)) for x in parts]
    message = re.compile(".*".join(patterns), re.DOTALL)
    return pytest.raises(ValueError, match=message)


def named(**wrong):
    """Rows of one argument each, which the message names and shows."""
    return [({n: x}, f"`{n}`", re.escape(repr(x))) for n, x in wrong.items()]


def meant(**names):
    """Rows of names that others use, and of ours, which the message knows."""
    return [
        ({theirs: 1}, f"`{theirs}`", f"Did you mean '{ours}'")
        for theirs, ours in names.items()
    ]


def flat(table):
    """The rows of all layers; lists, so that each is a value of its own."""
    return [
        pytest.param(layer, [*row], id=f"{layer}-{row}")
        for layer, rows in table.items()
        for row in rows
    ]


# What a lambda layer and attention say alike.
ALIKE = [
    *named(num_heads=0, key_dim=-1),
    ({"filters": 7}, "`filters`", "7.*2"),
    ({"scope": 4}, "`scope`", "odd.*4"),
    *meant(heads="num_heads"),
    ({"activation": "relu"}, "an Activation layer"),
    ({"dropout": 0.1}, "follow the layer with `Dropout`"),
    ({"use_causal_mask": True}, "causal=True"),
]
_SWITCHES = (
    *("use_content", "use_position", "use_position_bias", "causal"),
    *("multi_head", "use_batch_norm", "use_sync_bn"),
)
_OF_WINDOWS = ("padding", "strides", "stride", "dilation_rate")
_BOTH_STEPS = "`strides`.*`dilation_rate`"
_NEITHER = {"use_content": False, "use_position": False}
_BIAS_ALONE = {"use_position": False, "use_position_bias": True}
# By layer: arguments, also as other libraries call them, and what the message
# says.
CONSTRUCTION = {
    "LambdaLayer": [
        *ALIKE,
        *named(filters=0, intra_depth=True, scope="7", norm_epsilon=-0.001),
        *named(filters=8.0, scope=(), norm_momentum=2.0),
        *named(implementation="fast", position_embedding="absolute"),
        *named(key_normalization="max", query_normalization="l2"),
        *named(norm_momentum=None, position_embedding=None),
        ({"position_embedding": [1]}, "`position_embedding`"),
        *(({n: "no"}, f"`{n}`.*True or False.*'no'") for n in _SWITCHES),
        ({"scope": (3, 4)}, "`scope`.*odd.*4"),
        ({"scope": (3, 3, 3, 3)}, "`scope`.*1 to 3"),
        (_NEITHER, "`use_content`.*`use_position`"),
        (_BIAS_ALONE, "`use_position_bias`.*use_position=False"),
        *meant(kei_dim="key_dim", units="filters", dim_out="filters"),
        *meant(dim_k="key_dim", dim_head="key_dim", dim_u="intra_depth"),
        *meant(r="scope", kernel_size="scope"),
        *(({n: 2}, f"`{n}`.*`LambdaConv`") for n in _OF_WINDOWS),
        ({"activation": "relu"}, "`activation`.*has: filters"),
        ({"num_classes": 10}, "follow it with a Dense"),
        ({"return_sequences": True}, "GlobalAveragePooling1D"),
        ({"use_bias": True}, "no bias"),
        ({"value_dim": 4}, "`filters / num_heads`"),
        ({"dim": 8}, "channels of the inputs are read"),
        ({"n": 64}, "scope=None is global"),
        ({"data_format": "channels_first"}, "Permute"),
        ({"kernel_initializer": "zeros"}, "`query_initializer`"),
        ({"return_attention_scores": True}, "No attention scores"),
        ({"attention_mask": None}, "belongs in the call"),
    ],
    "LambdaConv": [
        *named(kernel_size=None, strides=0, padding="full", filters=None),
        ({"filters": 7}, "7.*2"),
        ({"kernel_size": 4}, "`kernel_size`.*odd.*4"),
        ({"dilation_rate": (1, -1)}, "`dilation_rate`.*-1"),
        ({"strides": 2, "dilation_rate": 2}, f"{_BOTH_STEPS}.*2.*2"),
        ({"strides": (1, 2), "dilation_rate": (2, 1)}, _BOTH_STEPS),
        *meant(stride="strides", r="kernel_size", scope="kernel_size"),
        ({"position_embedding": "explicit"}, "explicit"),
        ({"classes": 2}, "a Dense"),
        ({"use_causal_mask": True}, "padding='causal'"),
        ({"causal": True}, "'causal'"),
    ],
    "RelativeAttention": [
        *ALIKE,
        *named(axis=-1, use_content=None),
        (
            {"position_embedding": "relative"},
            "`position_embedding`.*'per_axis'.*'relative'",
        ),
        (
            {"position_embedding": None, "use_content": False},
            "`use_content`.*`position_embedding`",
        ),
        ({"causal": 2}, "`causal`.*True or False.*2"),
        *meant(embed_dim="filters", attention_axes="axis"),
        ({"strides": 2}, "follow it with AveragePooling2D"),
        ({"padding": "same"}, "keeps the sizes"),
    ],
    "RelativePositionEmbedding": [
        *named(key_dim=0, num_heads=0, intra_depth=-2),
        ({"scope": 6}, "`scope`.*odd.*6"),
        ({"max_distance": 3}, "`scope`"),
    ],
    "Dropout": [
        *named(rate=1.5),
        ({"seed": 1}, "`seed`.*rate"),
        ({"noise_shape": [1]}, "`StochasticDepth`"),
    ],
    "SqueezeExcite": [
        *(named(ratio=x)[0] for x in (0, -0.5, "a", True, None)),
        ({"reduction": 4}, "1 / `ratio`"),
        ({"filters": 4}, "those of the inputs"),
    ],
    "StochasticDepth": [
        *(named(rate=x)[0] for x in (1.0, -0.1)),
        ({"survival_probability": 1}, "1 - `rate`"),
        ({"drop_prob": 0.1}, "`drop_prob`.*'rate'"),
    ],
}


@pytest.mark.parametrize(("layer", "row"), flat(CONSTRUCTION))
def test_construction(layer, row):
    arguments, *message = row
    with refused(*message):
        made(layer, **arguments)


# (layer, what stands there without a name, what the message says)
POSITIONS = [
    ("LambdaLayer", (48, 3), "`filters` by position.*3.*scope=.*num_heads"),
    ("LambdaLayer", (64, 8, 7), "8, 7.*scope, causal, num_heads, key_dim"),
    ("LambdaConv", (8, 3, 2), "`filters`, `kernel_size`.*2.*strides="),
    ("RelativeAttention", (8, 2), "`filters`.*2.*num_heads="),
    ("RelativePositionEmbedding", (3, 1), "`key_dim`.*1.*intra_depth="),
    ("SqueezeExcite", (0.5, "silu"), "`ratio`.*'silu'.*activation="),
    ("StochasticDepth", (0.5, None, 1), "`rate`.*None, 1"),
    ("Dropout", (0.5, None), "`rate`.*None"),
    ("LambdaConv", (8,), "needs `kernel_size`"),
    ("LambdaConv", (), "needs `filters` and `kernel_size`"),
    ("Dropout", (), "needs `rate`"),
    ("StochasticDepth", (), "needs `rate`"),
]


@pytest.mark.parametrize(("layer", "given", "message"), POSITIONS)
def test_arguments_without_names(layer, given, message):
    with refused(message):
        getattr(layers, layer)(*given)


_TEXT, _MAP = np.zeros([2, 5, 8], "float32"), np.zeros([2, 5, 5, 8], "float32")
_THREE = [tf.constant(_TEXT)] * 3
_UNEVEN = [[[1.0], [2.0]], [[1.0]]]
_OTHER, _WIDE, _HIGH, _FLAT = (2, 6, 4), (2, 3, 5, 4), (2, 5, 3, 4), (2, 15, 4)
_TWOS = (2, 2, 2)
_FREE, _GIVEN = {"use_position": False}, {"position_embedding": "explicit"}
_ROWS = {"axis": 1, "position_embedding": None}
_VALID = {"kernel_size": 5, "padding": "valid"}
_OF_A_MAP = "`context`", (3, 5), (15,)
_NO_SCORES = "`return_attention_scores`.*No attention scores", r"layer\.read\("
_MASK, _ADDED = "`attention_mask`", r"shortcut \+ layer\(branch\)"

# By layer: its arguments, shapes that it is called on (of inputs (2, 5, 4) if
# none are named), and those that the message expects. It names the last
# argument and shows its shape.
SHAPES = {
    "LambdaLayer": [
        ({}, {"attention_mask": (5,)}, (5, 5)),
        ({}, {"attention_mask": (3, 5, 5)}, (5, 5)),
        ({}, {"attention_mask": (2, 3, 5, 5)}, (2, 2, 5, 5)),
        (_FREE, {"context": _OTHER, "attention_mask": (6, 5)}, (5, 6)),
        ({}, {"context_mask": (2, 6)}),
        (_FREE, {"context": _OTHER, "context_mask": (2, 5)}),
        ({}, {"inputs": _WIDE, "context_mask": (2, 5, 3)}),
        (_FREE, {"context": (2, 6)}),
        (_GIVEN, {"embeddings": (5, 5, 4)}),
        (_GIVEN, {"context": _OTHER, "embeddings": (6, 5, 3)}),
        (_GIVEN, {"embeddings": (3, 5, 5, 3)}),
        (_GIVEN, {"embeddings": (2, 5, 5, 3, 1)}),
        ({**_GIVEN, "intra_depth": 2}, {"embeddings": (5, 5, 3)}),
        ({**_GIVEN, "multi_head": True}, {"embeddings": (5, 5, 3)}),
    ],
    "RelativeAttention": [
        ({"axis": 1}, {"inputs": _WIDE, "attention_mask": (15, 15)}, (3, 3)),
    ],
}


def call(layer, arguments, given):
    """Calls a layer; of a shape a tensor is made, true where it is a mask."""
    tensors = {"inputs": tf.zeros([2, 5, 4])}
    for name, value in given.items():
        make = np.ones if "mask" in name else tf.zeros
        tensors[name] = make(value) if isinstance(value, tuple) else value
    made(layer, **arguments)(tensors.pop("inputs"), **tensors)


@pytest.mark.parametrize(("layer", "row"), flat(SHAPES))
def test_shapes_of_a_call(layer, row):
    arguments, given, *expected = row
    name, shape = [*given.items()][-1]
    with refused(f"`{name}`", *expected, shape):
        call(layer, arguments, given)


# By layer: its arguments, what it is called on, and what the message says.
CALLS = {
    "LambdaLayer": [
        ({}, {"inputs": (2, 7)}, (2, 7)),
        ({}, {"inputs": (2, 2, 2, 2, 2, 7)}, (2, 2, 2, 2, 2, 7)),
        ({}, {"inputs": (2, 0, 4)}, (2, 0, 4)),
        ({}, {"inputs": _THREE}, "list of 3.*context=value"),
        ({}, {"inputs": {"x": _TEXT}}, "one tensor.*dict"),
        ({}, {"inputs": _UNEVEN}, "`inputs`.*equal lengths"),
        ({}, {"inputs": tf.ragged.constant(_UNEVEN)}, "dense.*to_tensor"),
        ({"filters": None, "num_heads": 3}, {"inputs": (2, 5, 7)}, "7.*3"),
        ({"scope": (3, 3, 3)}, {"inputs": _WIDE}, "`scope`", (3, 3, 3)),
        ({"scope": (3, 3)}, {}, "`scope`", (3, 3)),
        ({"causal": True}, {"inputs": _WIDE}, "`causal.*one spatial axis"),
        ({}, {"context_mask": [[1, 1], [1]]}, "`context_mask`.*equal lengths"),
        (_FREE, {"context": (3, 6, 4)}, "batch.*2.*3"),
        ({}, {"context": _OTHER}, "`context`", (5,), (6,)),
        ({}, {"inputs": _WIDE, "context": _HIGH}, "`context`", (3, 5), (5, 3)),
        ({"scope": 3}, {"inputs": _WIDE, "context": _FLAT}, *_OF_A_MAP),
        (_GIVEN, {}, "`embeddings`"),
        ({}, {"embeddings": (5, 5, 3)}, "`embeddings`.*explicit"),
        (_FREE, {"embeddings": (5, 5, 3)}, "`embeddings`"),
        ({}, {"use_causal_mask": True}, "`use_causal_mask`.*causal=True"),
        ({}, {"return_attention_scores": True}, *_NO_SCORES),
        ({}, {"scope": 3}, "`scope`.*belongs in the constructor"),
        (
            {},
            {"context_masks": _TEXT},
            "`context_masks`.*Did you mean 'context_mask'",
        ),
    ],
    "LambdaConv": [
        ({}, {"inputs": _THREE}, "one tensor.*list of 3"),
        ({}, {"inputs": None}, "must be called on `inputs`"),
        ({}, {"inputs": (2, 0, 5, 4)}, (2, 0, 5, 4)),
        ({"padding": "causal"}, {"inputs": _WIDE}, "causal.*one spatial axis"),
        ({"kernel_size": (3, 3)}, {}, "`kernel_size`", (3, 3)),
        ({"strides": _TWOS}, {"inputs": _WIDE}, "`strides`", _TWOS),
        ({"dilation_rate": _TWOS}, {"inputs": _WIDE}, "`dilation_rate`", _TWOS),
        (_VALID, {"inputs": (2, 3, 9, 4)}, "5.*3|3.*5"),
        ({}, {"use_causal_mask": True}, "`use_causal_mask`.*padding='causal'"),
        ({}, {"context_mask": (2, 5)}, "`context_mask`.*has: inputs, mask"),
    ],
    "RelativeAttention": [
        ({}, {"inputs": _THREE}, "3.*context=value"),
        ({}, {"attention_mask": (2, 5)}, _MASK, (2, 5), "`context_mask`"),
        ({"scope": (3, 3, 3)}, {"inputs": _WIDE}, "`scope`", (3, 3, 3)),
        ({"scope": (3, 3), "axis": 1}, {"inputs": _WIDE}, "`scope`", (3, 3)),
        ({"axis": 3}, {"inputs": _WIDE}, "`axis`.*axis=3"),
        ({"causal": True}, {"inputs": _WIDE}, "`causal.*one spatial axis"),
        (
            _ROWS,
            {"inputs": _HIGH, "context": (2, 5, 4, 4)},
            "`context`",
            (5, 3),
            (5, 4),
        ),
        ({}, {"use_causal_mask": True}, "`use_causal_mask`.*causal=True"),
        (
            {},
            {"need_weights": True},
            "`need_weights`.*Did you mean 'return_attention_scores'",
        ),
    ],
    "RelativePositionEmbedding": [
        ({}, {"inputs": _THREE}, "one tensor.*list of 3"),
        ({"scope": (3, 3)}, {}, "`scope`", (3, 3)),
    ],
    "SqueezeExcite": [
        ({}, {"inputs": _THREE}, "list of 3"),
        ({}, {"inputs": _MAP, "axis": 1}, "`axis`.*has: inputs"),
    ],
    "BatchNormalization": [({}, {"inputs": _THREE}, "one tensor.*list of 3")],
    "StochasticDepth": [({}, {"inputs": _THREE}, "list of 3", _ADDED)],
    "Dropout": [({}, {"inputs": _THREE}, "list of 3")],
}


@pytest.mark.parametrize(("layer", "row"), flat(CALLS))
def test_calls(layer, row):
    arguments, given, *message = row
    with refused(*message):
        call(layer, arguments, given)


# (layer, its arguments, those of a table that it shares, message)
TABLES = [
    ("LambdaLayer", {"key_dim": 4}, {}, "key_dim.*4.*3|key_dim.*3.*4"),
    ("LambdaLayer", {"scope": 3}, {"scope": 5}, "scope.*3.*5|scope.*5.*3"),
    ("LambdaLayer", {}, {"intra_depth": 2}, "intra_depth.*(1.*2|2.*1)"),
    ("LambdaLayer", {"multi_head": True}, {}, "num_heads"),
    ("LambdaLayer", {}, {"num_heads": 2}, "num_heads"),
    ("RelativeAttention", {"key_dim": 4}, {}, "key_dim.*4.*3"),
    ("RelativeAttention", {}, {"scope": 5}, "scope.*None.*5"),
    ("RelativeAttention", {}, {"num_heads": 2}, "num_heads.*None.*2"),
]


@pytest.mark.parametrize(("layer", "arguments", "shared", "message"), TABLES)
def test_tables_of_another_size(layer, arguments, shared, message):
    shared = made("RelativePositionEmbedding", **shared)
    with refused(message):
        made(layer, **arguments, position_embedding=shared)(_TEXT)


# (layer, its arguments, what it is called on after `_TEXT`, message)
_A_LINE = "built for inputs with 1 spatial axis.*2"
_LONGER, _NARROWER = np.zeros([1, 6, 8], "float32"), _TEXT[..., :4]
_TOO_LONG = r"\(5,\).*\(6,\).*largest.*`scope`"
BUILT = [
    ("LambdaLayer", {}, _MAP, _A_LINE),
    ("LambdaLayer", {"scope": 3}, _MAP, _A_LINE),
    ("LambdaConv", {}, _MAP, _A_LINE),
    ("RelativeAttention", {}, _MAP, _A_LINE),
    ("RelativeAttention", {"scope": 3}, _MAP, _A_LINE),
    ("RelativeAttention", {"position_embedding": "joint"}, _MAP, _A_LINE),
    ("RelativePositionEmbedding", {}, _MAP, _A_LINE),
    ("LambdaConv", {}, _NARROWER, "8.*4|4.*8"),
    ("SqueezeExcite", {}, _NARROWER, "8.*4|4.*8"),
    ("LambdaLayer", {"scope": 3}, _NARROWER, "8.*4|4.*8"),
    ("LambdaLayer", {}, _LONGER, _TOO_LONG),
    ("RelativeAttention", {}, _LONGER, _TOO_LONG),
]


@pytest.mark.parametrize(("layer", "arguments", "x", "message"), BUILT)
def test_other_inputs_than_those_it_was_built_for(layer, arguments, x, message):
    layer = made(layer, **arguments)
    layer(_TEXT)
    with refused(message):
        layer(x)


mixing = functools.partial(made, "LambdaLayer")
attention = functools.partial(made, "RelativeAttention")
conv = functools.partial(made, "LambdaConv")
table = functools.partial(made, "RelativePositionEmbedding")
small = models.LambdaResNetSmall


class Subclassed(tf.keras.Model):
    def __init__(self):
        super().__init__(name="mine")
        self.mixing = mixing(scope=3)
        self.pool = tf.keras.layers.GlobalAveragePooling2D()
        self.head = tf.keras.layers.Dense(3)

    def call(self, images):
        return self.head(self.pool(self.mixing(images)))


def words():
    tokens = tf.keras.Input((5,), dtype="int32")
    x = tf.keras.layers.Embedding(7, 8)(tokens)
    return tf.keras.Model(tokens, mixing(name="mixing")(x))


def field(model=None, inputs=_TEXT, layer="mixing", **kwargs):
    if model is None:
        x = tf.keras.Input((5, 8))
        model = tf.keras.Model(x, mixing(name="mixing")(x))
    return analysis.receptive_field(model, layer, inputs, **kwargs)


def behind_weights():
    images = tf.keras.Input((8, 8, 1))
    tensor = tf.keras.layers.Conv2D(1, 1)(images)
    return small(input_tensor=tensor, weights="x.npz")


def spec(**kwargs):
    return specs.ResNetSpec("mine", ("L",), widths=(8,), strides=(1,), **kwargs)


def unknown(make, **arguments):
    inputs = tf.keras.Input([None, 4])
    return make(**arguments)(inputs, attention_mask=np.ones([5, 5], bool))


_SHAPE, _TOKENS = (None, 5, 4), np.zeros([2, 5], "int32")
# (what is called, what the message says)
USES = [
    (lambda: made("StochasticDepth")(_TEXT, _TEXT), f"2 arguments.*{_ADDED}"),
    (
        lambda: mixing()(_TEXT, _TEXT, _TEXT),
        "`inputs` and `context` by position.*3 arguments.*context=value",
    ),
    (lambda: LambdaLayer(8, **{"filters": 8}), "`filters` is given twice"),
    (lambda: mixing()(_TEXT, **{"inputs": _TEXT}), "`inputs` is given twice"),
    (lambda: mixing()(), "must be called on `inputs`"),
    (
        lambda: mixing()(query=_TEXT, value=_TEXT),
        "`query`.*`inputs` are the queries",
    ),
    (lambda: mixing().build(), "`inputs_shape`"),
    (lambda: attention().build(_SHAPE, shape=3), "`inputs_shape`.*shape="),
    (lambda: mixing().build([_SHAPE, _SHAPE]), "one tensor"),
    (lambda: conv().build((None, 5)), r"\(None, 5\)"),
    (lambda: table().build((None, 5)), r"\(None, 5\)"),
    (lambda: mixing().plan, "`plan` before it is"),
    (lambda: conv().inference_plan, "`inference_plan` before it is"),
    (lambda: mixing().value_dim, "`value_dim`"),
    (lambda: attention().key_depth, "`key_depth`"),
    (lambda: attention().value_dim, "`value_dim`"),
    (lambda: attention().tables(), "`tables`"),
    (lambda: mixing().state_spec(), "has no `state` before it is built"),
    (lambda: table().entries_for((5,)), "before it is"),
    (lambda: unknown(mixing, scope=3), "`attention_mask`.*static"),
    (lambda: unknown(attention, scope=3, axis=1), "`attention_mask`.*static"),
    *(
        (
            lambda make=make: make()(tf.keras.Input([5, 7, None])),
            "channels|last",
        )
        for make in (mixing, conv, attention)
    ),
    (
        lambda: models.ResNet50(pattern="CCLL", stages=("C",) * 4),
        "`pattern` and `stages`.*give one",
    ),
    (
        lambda: models.LambdaResNet50(
            image_size=64, input_shape=(96, 96, 3), endpoints=("c2",)
        ),
        "`image_size` would change nothing.*image_size=64.*96",
    ),
    (lambda: models.ResNet50("LLLL"), "`include_top`.*'LLLL'.*by keyword"),
    (
        lambda: models.LambdaResNet50(False, include_top=True),
        "`include_top` is given twice",
    ),
    (lambda: spec(scope=4), "`scope`.*odd.*4"),
    (
        lambda: models.build("MobileNetV2", scope=3),
        "`scope` is not an argument of MobileNetV2",
    ),
    (lambda: models.ResNet(), "ResNet needs `spec`"),
    (lambda: models.ResNet("x"), "`spec`.*ResNetSpec.*'x'"),
    (behind_weights, "`weights`.*`input_tensor`"),
    (lambda: analysis.analyze(Subclassed()), r"'mine'.*model.call\(images\)"),
    (
        lambda: serving.export_model(Subclassed(), "unused", "mine"),
        r"'mine'.*model.call\(images\)",
    ),
    (lambda: models.clone_network(Subclassed()), "functional.*'mine'"),
    (lambda: analysis.analyze("x"), "`model`.*str"),
    (
        lambda: analysis.analyze(tf.keras.Sequential([conv()])),
        "functional.*without inputs",
    ),
    (lambda: field(probes=0), "`probes`.*0"),
    (lambda: field(inputs=_TEXT[:0]), "`inputs`.*none"),
    (lambda: field(layer=None), "`layer`.*None"),
    (lambda: field(words(), _TOKENS), "Embedding.*source='layer'"),
    (lambda: analysis.layer_part(mixing(), "content"), "`layer` must be built"),
]


@pytest.mark.parametrize(
    ("use", "message"), USES, ids=[message for _, message in USES]
)
def test_what_is_refused(use, message):
    with refused(message):
        use()


_NO_CLASSIFIER = "`dropout_rate` would change nothing.*no classifier.*0.1"
# (arguments of a network, what the message says)
NETWORKS = [
    ({"parameters": 5}, "`parameters` is not an.*5"),
    ({"evaluation_crop": -1.0}, "`evaluation_crop`.*-1.0"),
    ({"image_size": 16}, "`image_size` would change nothing.*16"),
    ({"image_size": 0}, "`image_size`.*0"),
    ({"pooling": "banana"}, "`pooling`.*banana"),
    ({"include_top": False, "classes": -1}, "`classes`.*-1"),
    ({"include_preprocessing": "no"}, "`include_preprocessing`.*True or False"),
    ({"use_sync_bn": 2}, "`use_sync_bn`.*2"),
    ({"image_mean": (1.0, 2.0, 3.0)}, "`image_mean`.*color"),
    ({"dropout_rate": 0.1, "include_top": False}, _NO_CLASSIFIER),
    ({"dropout_rate": 0.1, "endpoints": ("c2",)}, _NO_CLASSIFIER),
    ({"num_classes": 3}, "Did you mean 'classes'"),
    ({"num_class": 3}, "Did you mean 'classes'"),
    ({"pretrained": True}, "Did you mean 'weights'"),
    ({"drop_rate": 0.1}, "'dropout_rate'"),
]


@pytest.mark.parametrize(("arguments", "message"), NETWORKS, ids=str)
def test_arguments_of_a_network(arguments, message):
    with refused(message):
        small(**arguments)


def test_a_failed_call_leaves_nothing_behind():
    for make in (mixing, attention):
        layer = make()
        with pytest.raises(ValueError, match="`context`"):
            layer(_TEXT, context=np.zeros([2, 6, 3], "float32"))
        layer.build((None, 5, 8))
        assert layer(_TEXT).shape == (2, 5, 8)


@pytest.mark.parametrize(
    "layer", ["LambdaLayer", "RelativeAttention", "LambdaConv"]
)
def test_build_takes_the_name_of_other_layers(layer):
    layer = made(layer)
    layer.build(input_shape=(None, 5, 8))
    assert layer(_TEXT).shape == (2, 5, 8)


def test_channels_first():
    tf.keras.backend.set_image_data_format("channels_first")
    try:
        for make in (mixing, attention, conv, layers.SqueezeExcite):
            with pytest.raises(
                ValueError, match=r"set_image_data_format\('channels_last'\)"
            ):
                make()(_MAP)
            make()(_TEXT)  # Their channels are last in either format.
    finally:
        tf.keras.backend.set_image_data_format("channels_last")


@pytest.mark.parametrize("shape", [[None, 7], [5, None, 7], [None, None, 7]])
def test_unknown_size_under_a_global_scope(shape):
    for make in (mixing, table, attention):
        with refused("scope.*None"):
            make()(tf.keras.Input(shape))
    attention(position_embedding=None)(tf.keras.Input(shape))
    mixing(use_position=False)(tf.keras.Input(shape))


def test_global_table_on_a_larger_grid():
    shared = table()
    mixing(position_embedding=shared)(tf.zeros([2, 5, 4]))
    with refused("9.*6"):
        mixing(position_embedding=shared)(tf.zeros([2, 6, 4]))


def test_integers_are_accepted_as_numpy_gives_them():
    layer = LambdaLayer(
        filters=np.int64(8),
        num_heads=np.int32(2),
        key_dim=np.int64(3),
        scope=np.array([3, 5]).tolist(),
    )
    assert layer(tf.zeros([1, 5, 5, 4])).shape == (1, 5, 5, 8)


def test_training_as_a_tensor(rng):
    layer = mixing()
    x = tf.constant(rng.normal(size=[2, 5, 4]), tf.float32)
    expected = layer(x, training=False)
    np.testing.assert_array_equal(
        layer(x, training=tf.constant(False)), expected
    )
    call = tf.function(lambda x, training: layer(x, training=training))
    if KERAS_3:
        with pytest.raises(ValueError, match="`training`.*True, False or None"):
            call(x, tf.constant(False))
    else:
        np.testing.assert_allclose(call(x, tf.constant(False)), expected, 1e-5)


@pytest.mark.slow
def test_a_subclass_is_wrapped_by_what_the_error_says(tmp_path):
    model, images = Subclassed(), tf.keras.Input((5, 5, 3))
    wrapped = tf.keras.Model(images, model.call(images))
    kinds = [row.kind for row in analysis.analyze(wrapped).layers]
    assert "LambdaLayer" in kinds
    options = serving.ExportOptions(classifier_activation="softmax")
    folder = serving.export_model(wrapped, tmp_path, "mine", options=options)
    assert folder.is_dir()


@pytest.mark.slow
def test_a_network_documents_what_it_has():
    text = models.MobileNetV2.__doc__
    assert '"head"' in text
    assert "letters A, X" not in text
    shown = inspect.signature(models.MobileNetV2).parameters
    assert "lambda_blocks" in shown
    assert not {"stages", "scope", "image_mean"} & set(shown)
    assert models.LambdaResNetSmall().output_shape == (None, 10)
    shown = inspect.signature(models.LambdaResNetSmall).parameters
    assert shown["classes"].default == 10
    for name in models.names():
        assert "as published" not in getattr(models, name).__doc__
