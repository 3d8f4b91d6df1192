"""What every layer of the package must satisfy."""

import copy
import inspect
import json
import math
import pickle

import numpy as np
import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from tests.support import attention_oracle
from tests.support import oracle

# Relative to the largest entry. A wrong formula is wrong by far more.
TOLERANCE = {"float32": 1e-5, "float64": 1e-11}


def _through_file(model, folder):
    model.save(folder / "model.keras")
    return tf.keras.models.load_model(folder / "model.keras")


# Every way of Keras to copy a model: functions of it and a folder.
COPIES = {
    "keras_file": _through_file,
    "clone_model": lambda model, _: tf.keras.models.clone_model(model),
    "deepcopy": lambda model, _: copy.deepcopy(model),
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)),
    "from_config": lambda model, _: type(model).from_config(model.get_config()),
    "json": lambda model, _: tf.keras.models.model_from_json(model.to_json()),
}


def assert_close(actual, expected, tolerance, name=""):
    """|actual - expected| <= tolerance times the largest |expected|."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, (name, actual.shape, expected.shape)
    assert np.all(np.isfinite(actual)), f"{name} not finite"
    scale = np.max(np.abs(expected), initial=0.0)
    error = np.max(np.abs(actual - expected), initial=0.0)
    assert error <= tolerance * scale, (
        f"{name} relative error {error / scale if scale else error:.3g}, "
        f"allowed {tolerance:.3g}"
    )


def assert_each_close(actual, expected, tolerance):
    for ours, theirs in zip(actual, expected, strict=True):
        assert_close(ours, theirs, tolerance)


def assert_all_close(actual, expected, tolerance):
    """`assert_close` of each value of two dictionaries; 0: of all bits."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(actual[name], value, tolerance, name)


def assert_far(actual, expected, distance=0.05):
    """A wrong form must be visibly wrong, or a test of it proves nothing."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    error = np.max(np.abs(actual - expected))
    assert error > distance * np.max(np.abs(expected))


def with_gradients(function, tensors, loss):
    """Outputs of a function, and the gradients of a loss of them."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = function(*tensors)
        value = loss(outputs)
    return [outputs, *tape.gradient(value, tensors)]


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


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def built(x, layer=LambdaLayer, seed=5, call=None, **arguments):
    """A layer with random weights, built for `x`."""
    layer = layer(**arguments)
    layer(tf.constant(x), **(call or {}))
    randomize(layer, np.random.default_rng(seed))
    return layer


def reference_weights(layer):
    """Variables of a layer, by the names that its oracle uses."""
    variables = {}
    for name in ("query", "key", "value"):
        if getattr(layer, name) is not None:
            variables[name] = getattr(layer, name).kernel
    for name in ("query", "value"):
        norm = getattr(layer, f"{name}_norm", None)
        if norm is not None:
            for part in ("gamma", "beta", "moving_mean", "moving_variance"):
                short = part.removeprefix("moving_")
                variables[f"{name}_{short}"] = getattr(norm, part)
    if layer.position_embedding not in (None, "explicit"):
        variables["embeddings"] = layer.position_embedding.embeddings
    elif isinstance(layer, RelativeAttention):
        variables |= {table.name: table.embeddings for table in layer.tables()}
    if getattr(layer, "position_bias", None) is not None:
        variables["position_bias"] = layer.position_bias
    return variables


def split_point(layer, arguments):
    """Float arrays by name (weights, inputs) and the arguments held fixed."""
    point = {
        name: raw(variable).numpy().astype(np.float64)
        for name, variable in reference_weights(layer).items()
    }
    fixed = {}
    for name, value in arguments.items():
        if name in ("attention_mask", "context_mask"):
            fixed[name] = np.asarray(value)
        else:
            name = "given_embeddings" if name == "embeddings" else name
            point[name] = np.asarray(value, np.float64)
    return point, fixed


def oracle_output(layer, arguments):
    """The oracle's output for the layer's weights and these arguments."""
    point, fixed = split_point(layer, arguments)
    return _oracle_of(layer, fixed)(point)


def _oracle_of(layer, fixed, training=False):
    """The oracle of a layer, as a function of its weights and inputs."""
    function, config = oracle.lambda_layer, layer.get_config()
    if isinstance(layer, RelativeAttention):
        function = attention_oracle.relative_attention
    known = inspect.signature(function).parameters
    settings = {name: config[name] for name in known if name in config}
    if "kernel_size" in config:
        settings["scope"] = config["kernel_size"]
    if "training" in known:
        settings["training"] = training

    def output(point):
        weights = dict(point)
        arguments = {
            name.removeprefix("given_"): weights.pop(name)
            for name in ("inputs", "context", "given_embeddings")
            if name in weights
        }
        return function(weights=weights, **arguments, **fixed, **settings)

    return output


def output_and_gradients(layer, arguments, cotangent, training=False):
    """Output, and gradients of sum(output * cotangent) by oracle name."""
    dtype = layer.compute_dtype
    tensors = {
        name: tf.constant(value, None if "mask" in name else dtype)
        for name, value in arguments.items()
    }
    sources = {
        "given_embeddings" if name == "embeddings" else name: tensor
        for name, tensor in tensors.items()
        if "mask" not in name
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

    Each gradient is compared with an exact derivative of the oracle along a
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
    directions = {n: rng.normal(size=x.shape) for n, x in gradients.items()}
    each = [{name: direction} for name, direction in directions.items()]
    for group in [directions] if jointly else each:
        slope = oracle.directional_derivative(reference, point, group)
        wanted = np.sum(slope * cotangent)
        terms = [gradients[name] * d for name, d in group.items()]
        found = sum(map(np.sum, terms))
        # What rounding can do grows with every term of the two sums.
        terms.append(slope * cotangent)
        scale = sum(np.sum(np.abs(term)) for term in terms)
        assert abs(found - wanted) <= tolerance * scale, (
            f"gradient of {sorted(group)}: {found} against {wanted}"
        )


def plain(config):
    """A config as JSON sees it, so that tuples equal lists."""
    return json.loads(json.dumps(config))


def position_output(queries, values, table, geometry, plan="auto"):
    """What queries read from position lambdas alone, without masks."""
    shape = [-1, math.prod(geometry.context), *values.shape[-2:]]
    values = tf.reshape(values, shape)
    outputs, _ = ops.lambda_output(queries, None, values, table, geometry, plan)
    return outputs
