"""Networks: images, feature maps and a head, with the common arguments."""

import inspect
from typing import Any

import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.arguments import boolean
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.layers import Dropout
from lambdanet_tf.layers.batch_normalization import NORM_MOMENTUM
from lambdanet_tf.models.images import rescaling
from lambdanet_tf.models.layer_factory import LayerFactory
from lambdanet_tf.models.pretrained import load_initial
from lambdanet_tf.models.weights import HEAD


def Network(
    spec,
    feature_maps,
    include_top=True,
    weights=None,
    input_tensor=None,
    input_shape=None,
    pooling=None,
    classes=1000,
    classifier_activation="softmax",
    name=None,
    include_preprocessing=True,
    endpoints=None,
    implementation="auto",
    kernel_initializer="he_normal",
    kernel_regularizer=None,
    norm_momentum=NORM_MOMENTUM,
    use_sync_bn=False,
    **changes: Any,
) -> tf.keras.Model:
    """Builds a network from a spec and a function that makes feature maps.

    Args:
        spec: `ResNetSpec` or `MobileNetSpec`.
        feature_maps: function of preprocessed images, the changed spec and a
            `LayerFactory` that returns maps by name, in order; the classifier
            uses the last one.
        include_top: bool. Whether to end in a classifier.
        weights: None; "imagenet" for published weights, if the network has
            any (Keras caches the download); "fashion_mnist" for the weights of
            `LambdaResNetSmall28` that this package includes. Or a path to an
            `.npz` file, a run folder or a `.safetensors` file of timm. If
            `classes` differs, a published classifier is not loaded. For other
            image sizes, see `lambdanet_tf.models.load_weights`.
        input_tensor: None, or a Keras tensor of images to build on.
        input_shape: (height, width, channels); None for the recommended size
            and 3 channels. If height and width are None, the network takes
            images of any size. That excludes global layers: lambda layers
            with `scope=None` and most kinds of attention.
        pooling: without a classifier, None for the last map, `"avg"` or
            `"max"` for its mean or maximum over positions.
        classes: int. Number of classes.
        classifier_activation: str, callable or None. None returns logits.
            The output is always float32.
        name: the model's name; None for the spec's.
        include_preprocessing: whether the model normalizes images in [0, 255]
            itself. If False, pass it the result of `preprocess_input` with
            the same argument.
        endpoints: None, or names of maps. The model then returns a dictionary
            of these feature maps, for example for a detector, without head or
            pooling.
        implementation: algorithm of the lambda layers.
        kernel_initializer: for convolutions and squeeze-and-excitation.
        kernel_regularizer: for every kernel, but no other weight.
        norm_momentum: of every batch normalization, also inside lambda
            layers. With 0.99 or more, inference agrees with training only
            after hundreds of steps.
        use_sync_bn: whether replicas share batch statistics.
        **changes: attributes of `spec` to change, by keyword.

    Returns:
        A `tf.keras.Model` that maps images in [0, 255], `(batch, height,
        width, channels)`, to probabilities `(batch, classes)`, unless
        `include_top`, `pooling` or `endpoints` change that. Its attribute
        `pyramid_outputs` holds its feature maps as in KerasHub's backbones: a
        dictionary of Keras tensors, in most networks `"P2"` to `"P5"`, where
        `"Pn"` has stride 2^n. Copies that Keras makes or loads lack it.

    Raises:
        ValueError: if an argument is unknown or out of range, if images are
            smaller than the total stride, or if the weights do not fit.
        OSError: if published weights cannot be downloaded.
    """
    boolean("include_top", include_top)
    one_of("pooling", pooling, (None, "avg", "max"))
    positive_int("classes", classes)
    others = list(inspect.signature(Network).parameters)[2:-1]
    spec = specs.replace(spec, changes, others)
    layers = LayerFactory(
        spec,
        kernel_initializer,
        kernel_regularizer,
        norm_momentum,
        use_sync_bn,
        implementation,
    )
    inputs, images = _image_input(input_tensor, input_shape, spec)
    x = images
    if include_preprocessing:
        x = rescaling(images.shape[-1], spec)(images)
    maps = feature_maps(x, spec, layers)
    if endpoints is not None:
        if not endpoints or set(endpoints) - set(maps):
            raise ValueError(
                f"`endpoints` must be one or more names of {tuple(maps)}. "
                f"Received: endpoints={endpoints!r}."
            )
        outputs = {name: maps[name] for name in endpoints}
    elif include_top:
        x = _pooled(list(maps.values())[-1], "avg")
        if spec.dropout_rate > 0:
            x = Dropout(spec.dropout_rate, name="dropout")(x)
        outputs = tf.keras.layers.Dense(
            classes,
            activation=classifier_activation,
            kernel_initializer=tf.keras.initializers.RandomNormal(stddev=0.01),
            kernel_regularizer=kernel_regularizer,
            dtype="float32",  # Under any policy.
            name=HEAD,
        )(x)
    else:
        outputs = _pooled(list(maps.values())[-1], pooling)
    model = tf.keras.Model(inputs, outputs, name=name or spec.name)
    absent = _absent(endpoints, maps)
    pyramid = {
        f"P{level}": maps[name]
        for level, name in specs.pyramid_levels(spec).items()
        if name not in absent
    }
    # Keras' own __setattr__ would track it as part of the model.
    object.__setattr__(model, "pyramid_outputs", pyramid)
    if weights is not None:
        load_initial(model, spec, weights, _unread(endpoints, absent))
    return model


def _image_input(input_tensor, input_shape, spec):
    """Returns the inputs of the model and the images, as Keras tensors."""
    if input_tensor is None:
        shape = tuple(input_shape or (spec.image_size, spec.image_size, 3))
        _check_shape(shape, spec.stride)
        images = tf.keras.Input(shape, name="images")
        return images, images
    _check_shape(tuple(input_tensor.shape[1:]), spec.stride)
    return tf.keras.utils.get_source_inputs(input_tensor), input_tensor


def _check_shape(shape, stride):
    """Raises a ValueError unless images of a shape fit the network."""
    if len(shape) != 3 or shape[-1] is None:
        raise ValueError(
            "`input_shape` must be (height, width, channels); only height and "
            f"width can be None. Received: {shape}."
        )
    if any(size is not None and size < stride for size in shape[:2]):
        raise ValueError(
            f"Images must have at least {stride}x{stride} pixels, the total "
            f"stride of this network. Received: input_shape={shape}. Enlarge "
            "the images, or change `strides`, `stem_strides` and `stem_pool`."
        )


def _pooled(x, pooling):
    if pooling is None:
        return x
    if pooling == "avg":
        # tf_keras would sum half precisions in half precision.
        dtype = "float32" if tf.as_dtype(x.dtype).size < 4 else None
        return tf.keras.layers.GlobalAveragePooling2D(name="pool", dtype=dtype)(
            x
        )
    return tf.keras.layers.GlobalMaxPooling2D(name="pool")(x)


def _absent(endpoints, maps):
    """Returns the names of the maps after the last endpoint."""
    if endpoints is None:
        return []
    cut = max(list(maps).index(name) for name in endpoints)
    return list(maps)[cut + 1 :]


def _unread(endpoints, absent):
    """Returns prefixes of weights that a file may have in addition."""
    if endpoints is None:
        return ()
    rest = (name.replace("c", "stage") for name in absent)
    return (HEAD, *(f"{name}_" for name in rest))
