"""What every layer of the package must satisfy, under both Kerases.

`check_layer` is our own `run_layer_test`. `assert_equals_oracle` holds a
lambda layer against `tests/support/oracle.py`, and attention against
`tests/support/attention_oracle.py`, forward and backward.
"""

import copy
import inspect
import json
import math
import pickle

import numpy as np
import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.layers import RelativeAttention
from tests.support import attention_oracle
from tests.support import oracle

# Relative to the largest entry. A wrong formula is wrong by far more.
TOLERANCE = {"float32": 1e-5, "float64": 1e-11}


def _through_file(model, folder):
    model.save(folder / "model.keras")
    return tf.keras.models.load_model(folder / "model.keras")


# Every way of Keras to make a model of a model: functions of it and a folder.
COPIES = {
    "keras_file": _through_file,
    "clone_model": lambda model, _: tf.keras.models.clone_model(model),
    "deepcopy": lambda model, _: copy.deepcopy(model),
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)),
    "from_config": lambda model, _: type(model).from_config(model.get_config()),
    "json": lambda model, _: tf.keras.models.model_from_json(model.to_json()),
}


def assert_close(actual, expected, tolerance):
    """|actual - expected| <= tolerance times the largest |expected|."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert np.all(np.isfinite(actual)), "not finite"
    scale = np.max(np.abs(expected), initial=0.0)
    error = np.max(np.abs(actual - expected), initial=0.0)
    assert error <= tolerance * scale, (
        f"relative error {error / scale if scale else error:.3g}, "
        f"allowed {tolerance:.3g}"
    )


def assert_far(actual, expected, distance=0.05):
    """A wrong form must be visibly wrong, or a test of it proves nothing."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    error = np.max(np.abs(actual - expected))
    assert error > distance * np.max(np.abs(expected))


def raw(variable):
    """The tf.Variable behind a variable of either Keras."""
    value = getattr(variable, "value", None)
    return variable if callable(value) or value is None else value


def randomize(layer, rng):
    """Gives every variable of a layer or model a distinct random value."""
    for variable in layer.weights:
        name, shape = variable.name, tuple(variable.shape)
        if "gamma" in name or "variance" in name:
            value = rng.uniform(0.5, 1.5, shape)
        elif "kernel" in name:
            value = rng.normal(size=shape) / np.sqrt(shape[0])
        else:
            value = rng.normal(size=shape)
        variable.assign(value.astype(np.float64))


def reference_weights(layer):
    """Variables of a layer, by the names that its oracle uses."""
    variables = {}
    for name in ("query", "key", "value"):
        if getattr(layer, name) is not None:
            variables[name] = getattr(layer, name).kernel
    for name in ("query", "value"):
        norm = getattr(layer, f"{name}_norm", None)
        if norm is not None:
            variables[f"{name}_gamma"] = norm.gamma
            variables[f"{name}_beta"] = norm.beta
            variables[f"{name}_mean"] = norm.moving_mean
            variables[f"{name}_variance"] = norm.moving_variance
    if layer.position_embedding not in (None, "explicit"):
        variables["embeddings"] = layer.position_embedding.embeddings
    elif isinstance(layer, RelativeAttention):
        variables |= {table.name: table.embeddings for table in layer.tables()}
    if getattr(layer, "position_bias", None) is not None:
        variables["position_bias"] = layer.position_bias
    return variables


# Arguments of the layers that change their function, as their oracles know
# them.
_ATTENTION_SETTINGS = ("num_heads", "scope", "axis", "use_content", "causal")
_SETTINGS = (
    "num_heads",
    "key_dim",
    "intra_depth",
    "scope",
    "strides",
    "dilation_rate",
    "padding",
    "use_content",
    "use_position",
    "multi_head",
    "causal",
    "key_normalization",
    "query_normalization",
    "norm_epsilon",
)


def oracle_settings(layer):
    config = layer.get_config()
    if isinstance(layer, RelativeAttention):
        return {name: config[name] for name in _ATTENTION_SETTINGS}
    settings = {name: config[name] for name in _SETTINGS if name in config}
    if "kernel_size" in config:
        settings["scope"] = config["kernel_size"]
    return settings


def split_point(layer, arguments):
    """Float arrays by name (weights, inputs) and the arguments held fixed."""
    point = {
        name: raw(variable).numpy().astype(np.float64)
        for name, variable in reference_weights(layer).items()
    }
    fixed = {}
    for name, value in arguments.items():
        value = np.asarray(value)
        if name == "embeddings":
            name = "given_embeddings"
        if name in ("attention_mask", "context_mask"):
            fixed[name] = value
        else:
            point[name] = value.astype(np.float64)
    return point, fixed


def oracle_output(layer, arguments, training=False, **changes):
    """The oracle's output for the layer's weights and these arguments."""
    point, fixed = split_point(layer, arguments)
    return _oracle_of(layer, fixed, training, **changes)(point)


def _oracle_of(layer, fixed, training, **changes):
    """The oracle of a layer, as a function of its weights and inputs."""
    function = oracle.lambda_layer
    settings = oracle_settings(layer)
    if isinstance(layer, RelativeAttention):
        function = attention_oracle.relative_attention
    else:
        settings["training"] = training
    settings |= changes

    def output(point):
        point = dict(point)
        arguments = {
            name: point.pop(name)
            for name in ("inputs", "context")
            if name in point
        }
        if "given_embeddings" in point:
            arguments["embeddings"] = point.pop("given_embeddings")
        return function(weights=point, **arguments, **fixed, **settings)

    return output


def output_and_gradients(layer, arguments, cotangent, training=False):
    """Output, and gradients of sum(output * cotangent) by oracle name."""
    dtype = layer.compute_dtype
    tensors = {}
    for name, value in arguments.items():
        is_mask = name in ("attention_mask", "context_mask")
        tensors[name] = tf.constant(value, None if is_mask else dtype)
    sources = {
        "given_embeddings" if name == "embeddings" else name: tensor
        for name, tensor in tensors.items()
        if tensor.dtype.is_floating and "mask" not in name
    }
    sources |= {
        name: raw(variable)
        for name, variable in reference_weights(layer).items()
        if not name.endswith(("_mean", "_variance"))
    }
    with tf.GradientTape() as tape:
        for source in sources.values():
            if tf.is_tensor(source):
                tape.watch(source)
        output = layer(**tensors, training=training)
        loss = tf.reduce_sum(output * tf.cast(cotangent, output.dtype))
    gradients = tape.gradient(loss, sources, unconnected_gradients="zero")
    gradients = {
        name: tf.convert_to_tensor(value).numpy().astype(np.float64)
        for name, value in gradients.items()
    }
    return output.numpy(), gradients


def assert_equals_oracle(layer, arguments, rng, training=False, jointly=False):
    """Forward and every gradient of a layer against its oracle.

    Each gradient is held against an exact derivative of the oracle along a
    random direction of that array; all at once, cheaper, when `jointly`.
    """
    point, fixed = split_point(layer, arguments)
    reference = _oracle_of(layer, fixed, training)
    expected = reference(point)
    cotangent = rng.normal(size=expected.shape)
    output, gradients = output_and_gradients(
        layer, arguments, cotangent, training
    )
    tolerance = TOLERANCE[layer.compute_dtype]
    has_norm = getattr(layer, "use_batch_norm", False)
    if training and has_norm and "context_mask" in arguments:
        # Keras 3 divides a sum over unmasked rows by their number + 1e-7.
        tolerance = max(tolerance, 1e-5)
    assert_close(output, expected, tolerance)
    directions = {
        name: rng.normal(size=value.shape) for name, value in gradients.items()
    }
    groups = (
        [directions] if jointly else [{n: d} for n, d in directions.items()]
    )
    for group in groups:
        slope = oracle.directional_derivative(reference, point, group)
        wanted = np.sum(slope * cotangent)
        found = sum(np.sum(gradients[n] * d) for n, d in group.items())
        # What rounding can do grows with every term of the two sums.
        scale = np.sum(np.abs(slope * cotangent)) + sum(
            np.sum(np.abs(gradients[n] * d)) for n, d in group.items()
        )
        assert abs(found - wanted) <= tolerance * scale, (
            f"gradient of {sorted(group)}: {found} against {wanted}"
        )


def plain(config):
    """A config as JSON sees it, so that tuples equal lists."""
    return json.loads(json.dumps(config))


def check_config(case):
    """Constructor arguments, attributes and config keys are the same set."""
    layer = case.make()
    config = layer.get_config()
    parameters = inspect.signature(type(layer).__init__).parameters.values()
    names = {
        parameter.name
        for parameter in parameters
        if parameter.name != "self" and parameter.kind != parameter.VAR_KEYWORD
    }
    base = {"name", "trainable", "dtype"}
    assert set(config) - base == names
    assert base <= set(config)
    missing = [name for name in names if not hasattr(layer, name)]
    assert not missing, missing
    for name, value in case.arguments.items():
        if isinstance(value, str | int | float | bool | tuple | None):
            assert plain(config[name]) == plain(value), name
    for given in (config, plain(config)):
        copy = type(layer).from_config(given)
        assert plain(copy.get_config()) == plain(config)
    case.call(layer, case.data(batch=2))
    assert plain(layer.get_config()) == plain(config), "changed by building"


def check_build(case):
    """`build` alone creates all weights."""
    layer = case.make()
    data = case.data(batch=2)
    if set(data) != {"inputs"}:
        return
    layer.build((None, *case.inputs))
    built = [tuple(weight.shape) for weight in layer.weights]
    case.call(layer, data)
    assert built == [tuple(weight.shape) for weight in layer.weights]


def check_shapes(case):
    """Symbolic shape = eager shape = compute_output_shape; free sizes."""
    layer = case.make()
    data = case.data(batch=2)
    shape = tuple(case.call(layer, data).shape)
    if set(data) == {"inputs"}:
        computed = layer.compute_output_shape(data["inputs"].shape)
        assert tuple(computed) == shape
    model = case.model()
    if case.batched:
        assert tuple(model.output_shape) == (None, *shape[1:])
        for batch in (1, 3):
            output = model(case.data(batch=batch))
            assert tuple(output.shape) == (batch, *shape[1:])
    if case.any_size:
        free = case.model(free=True)
        unknown = (None,) * (len(case.inputs) - 1)
        assert tuple(free.output_shape) == (None, *unknown, shape[-1])
        for grow in (0, 1, 2):
            larger = (*(n + grow for n in case.inputs[:-1]), case.inputs[-1])
            x = np.random.default_rng(0).normal(size=[2, *larger])
            copied = case.make()
            expected = copied.compute_output_shape((2, *larger))
            assert tuple(free({"inputs": x}).shape) == tuple(expected)


def check_half_precision(case, policy):
    """Half precision comes out, float32 weights stay."""
    layer = case.make(dtype=policy)
    output = case.call(layer, case.data(batch=2))
    assert output.dtype == policy.removeprefix("mixed_")
    assert all(weight.dtype == "float32" for weight in layer.weights)


def check_gradients(case):
    """Every trainable weight gets a finite gradient that is not zero."""
    model = case.model()
    randomize(model, np.random.default_rng(0))
    with tf.GradientTape() as tape:
        output = model(case.data(batch=3), training=True)
        loss = tf.reduce_sum(output * tf.random.normal(tf.shape(output)))
    weights = model.trainable_weights
    assert len(weights) == case.trainable
    for weight, gradient in zip(
        weights,
        tape.gradient(loss, [raw(weight) for weight in weights]),
        strict=True,
    ):
        assert gradient is not None, weight.name
        gradient = tf.convert_to_tensor(gradient).numpy()
        assert np.all(np.isfinite(gradient)), weight.name
        assert np.any(gradient != 0), weight.name


def check_layer(case):
    """All of the above for one row of the table."""
    # What a layer of Keras keeps, and how, is for Keras to say.
    if case.has_own_config:
        check_config(case)
    check_build(case)
    check_shapes(case)
    check_half_precision(case, "mixed_bfloat16")
    check_gradients(case)


def position_output(queries, values, table, geometry, plan="auto"):
    """What queries read from position lambdas alone, without masks."""
    shape = [-1, math.prod(geometry.context), 1, *values.shape[-2:]]
    values = tf.reshape(values, shape)
    return ops.lambda_output(queries, None, values, table, geometry, plan)
