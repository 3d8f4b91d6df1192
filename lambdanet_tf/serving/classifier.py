"""A classifier of images: what it takes, how it ends, and its classes."""

import contextlib
import dataclasses

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.arguments import UserError
from lambdanet_tf.serving.options import ACTIVATIONS
from lambdanet_tf.serving.options import ExportOptions

ASSUMED = "assumed"  # How the reason for an activation begins if it is a guess.


_ELSE = (
    "Any other model is exported with `task='predict'` in its options: tensors "
    "in, tensors out."
)


@dataclasses.dataclass(frozen=True)
class ImageClassifier:
    """Images in [0, 255] to classes: both ends of a model.

    Attributes:
        dense: the layer that makes logits of features, when its own activation
            is taken away.
        activation: "softmax" of one class among several, or "sigmoid" of one
            output or of several labels at once.
        reason: why it is this one, in a few words.
        labels: a name for each class; two for one output.
        image_shape: (height, width, channels) of decoded images.
        crop: the evaluation preprocessing of encoded images.
    """

    dense: tf.keras.layers.Dense
    activation: str
    reason: str
    labels: tuple[str, ...]
    image_shape: tuple[int, int, int]
    crop: data.EvaluationCrop

    def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the probabilities of logits `(batch, outputs)`."""
        if self.activation == "sigmoid":
            return tf.sigmoid(logits)
        return tf.nn.softmax(logits)


def classifier_of(
    model: tf.keras.Model, options: ExportOptions
) -> ImageClassifier:
    """Finds what makes a model a classifier of images.

    Args:
        model: a functional model.
        options: of the export. Where they name no activation, it is what the
            model says: its own; for logits that of the loss that it was
            compiled with; a sigmoid of one output. A softmax of several logits
            is assumed.

    Raises:
        ValueError: if the model has several inputs or one of another kind; if
            it ends in anything but a Dense layer, or in neither logits nor
            probabilities by softmax or sigmoid; if it has another activation
            than the options, a softmax of one output, or one output and a loss
            of another kind; or if the labels or sizes do not fit it.
    """
    shape = _input_shape(model)
    dense, activation, reason = _end(model, options.classifier_activation)
    image_shape = _image_shape(options.image_size, shape)
    return ImageClassifier(
        dense,
        activation,
        reason,
        _labels(options.labels, dense.units),
        image_shape,
        data.EvaluationCrop(
            image_shape[:2], options.evaluation_crop, options.image_dtype
        ),
    )


def scores_of(probabilities: tf.Tensor) -> tf.Tensor:
    """Returns the score of each class `(batch, classes)`.

    They are the probabilities; one of a single output is that of class 1, and
    what is left is that of class 0.
    """
    if probabilities.shape[-1] > 1:
        return probabilities
    return tf.concat([1.0 - probabilities, probabilities], axis=-1)


def _input_shape(model):
    if len(model.inputs) != 1:
        raise UserError(
            "`model` must have one input, images. Received: "
            f"{len(model.inputs)} inputs. {_ELSE}"
        )
    shape = tuple(model.inputs[0].shape)
    if len(shape) != 4:
        raise UserError(
            "`model` must take images, (batch, height, width, channels). "
            f"Received: an input of shape {shape}. {_ELSE}"
        )
    if shape[-1] not in (1, 3):
        raise UserError(
            "`model` must take images of 1 or 3 channels. Received: an "
            f"input of shape {shape[1:]}. {_ELSE}"
        )
    return shape[1:]


def _labels(labels, num_outputs):
    """A name for each class; two for a network of one output."""
    num_classes = max(num_outputs, 2)
    if labels is None:
        return tuple(map(str, range(num_classes)))
    if len(labels) != num_classes:
        raise UserError(
            f"`labels` must hold {num_classes} names, one for each class "
            f"of the model. Received: {len(labels)} names."
        )
    if "" in labels:  # TensorFlow's tables take no empty line.
        raise UserError(
            "`labels` must be one line of text for each class. Received: none "
            f"for class {labels.index('')}."
        )
    return tuple(labels)


def _image_shape(image_size, input_shape):
    """(height, width, channels) of decoded images."""
    *size, channels = input_shape
    height, width = image_size or size
    if height is None or width is None:
        raise UserError(
            "`image_size` must be given for a model of any image size: "
            "(height, width) of decoded images. Received: None."
        )
    if any(
        fixed not in (None, wanted)
        for fixed, wanted in zip(size, (height, width), strict=True)
    ):
        raise UserError(
            f"`image_size` must be the model's, {tuple(size)}. Received: "
            f"{(height, width)}."
        )
    return height, width, channels


def _end(model, wanted):
    """The Dense at the end, its activation, and how that is known."""
    dense, names = _dense_and_activations(model)
    if dense is None:
        raise UserError(
            "`model` must end in a Dense layer of logits or probabilities. "
            f"Received: {model.name!r}, whose outputs are "
            f"{[output.name for output in model.outputs]}. {_ELSE}"
        )
    if len(dense.output.shape) != 2:
        raise UserError(
            "`model` must have one row of classes for an image. Received: "
            f"outputs of shape {tuple(dense.output.shape)}. {_ELSE}"
        )
    if len(names) > 1 or not set(names) <= set(ACTIVATIONS):
        raise UserError(
            "`model` must end in logits, or in probabilities by one softmax "
            f"or sigmoid. Received: {' and '.join(names)}. {_ELSE}"
        )
    own = names[0] if names else None
    if wanted and own and wanted != own:
        raise UserError(
            "`classifier_activation` must be the model's own, where it has "
            f"one. Received: {wanted!r} for a model that ends in {own!r}."
        )
    if own:
        activation, reason = own, "the model's own"
    elif wanted:
        activation, reason = wanted, "as the options say"
    else:
        activation, reason = _of_logits(model, dense.units)
    if activation == "softmax" and dense.units == 1:
        raise UserError(
            "A softmax of one output is 1, whatever the image. Received: a "
            "model of one output. Give `classifier_activation='sigmoid'` for "
            "one logit of two classes, or a Dense of 2 units."
        )
    return dense, activation, reason


def _dense_and_activations(model):
    """The Dense at the end of a model, or None, and names of activations."""
    makers = {}
    for layer in model.layers:
        with contextlib.suppress(AttributeError, ValueError):
            makers[id(layer.output)] = layer  # Not if called twice, or never.
    [output, *others] = model.outputs
    layer, names = makers.get(id(output)), []
    while layer is not None and isinstance(
        layer, tf.keras.layers.Activation | tf.keras.layers.Softmax
    ):
        names.append(_activation_name(layer))
        layer = makers.get(id(layer.input))
    if others or not isinstance(layer, tf.keras.layers.Dense):
        return None, []
    names.append(_activation_name(layer))
    return layer, [name for name in names if name != "linear"]


def _activation_name(layer):
    if isinstance(layer, tf.keras.layers.Softmax):
        return "softmax" if layer.axis == -1 else "softmax of another axis"
    for name in ("linear", *ACTIVATIONS):
        functions = [getattr(tf.keras.activations, name)]
        functions.append(getattr(tf.nn, name, None))
        if any(layer.activation is function for function in functions):
            return name
    return getattr(layer.activation, "__name__", str(layer.activation))


def _of_logits(model, units):
    """The activation that logits were trained for, and how it is known."""
    losses = [
        loss
        if isinstance(loss, str)
        else getattr(loss, "__name__", type(loss).__name__)
        for loss in tf.nest.flatten(getattr(model, "loss", None))
        if loss is not None
    ]
    plain = [name.lower().replace("_", "") for name in losses]
    if any(name.startswith(("binary", "bce")) for name in plain):
        return "sigmoid", f"that of the loss {losses[0]!r}"
    if any("categorical" in name for name in plain):
        return "softmax", f"that of the loss {losses[0]!r}"
    if losses and units == 1:
        raise UserError(
            "A model of one output must be compiled with a binary loss to be "
            f"exported as a classifier. Received: {losses[0]!r}. Give "
            f"`classifier_activation='sigmoid'` if it is the logit of a class. "
            f"{_ELSE}"
        )
    if units == 1:
        return "sigmoid", "one output"
    unknown = f"a loss {losses[0]!r}" if losses else "no loss"
    return "softmax", f"{ASSUMED}: the model ends in logits and has {unknown}"
