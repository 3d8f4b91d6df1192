"""The classifier at the end of a model: a Dense layer and its activation."""

import dataclasses

import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.serving.options import ACTIVATIONS

ASSUMED = "assumed"  # How the reason for an activation begins if it is a guess.


@dataclasses.dataclass(frozen=True)
class Classifier:
    """The end of a model, which makes probabilities of features.

    Attributes:
        dense: the layer that makes logits of features, when its own activation
            is taken away.
        activation: "softmax" of one class among several, or "sigmoid" of one
            output or of several labels at once.
        reason: why it is this one, in a few words.
    """

    dense: tf.keras.layers.Dense
    activation: str
    reason: str

    def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the probabilities of logits `(batch, outputs)`."""
        if self.activation == "sigmoid":
            return tf.sigmoid(logits)
        return tf.nn.softmax(logits)


def classifier_of(
    model: tf.keras.Model, wanted: str | None = None
) -> Classifier:
    """Finds the classifier at the end of a model.

    Args:
        model: a functional model.
        wanted: "softmax", "sigmoid", or None for what the model says: its own
            activation; for logits the loss that it was compiled with; a
            sigmoid of one output. A softmax of several logits is assumed.

    Raises:
        ValueError: if the model ends in anything but a Dense layer, or in
            neither logits nor probabilities by softmax or sigmoid; if it has
            another activation than `wanted`, a softmax of one output, or one
            output and a loss of another kind.
    """
    dense, names = _end(model)
    if dense is None:
        raise UserError(
            "`model` must end in a Dense layer of logits or probabilities. "
            f"Received: {model.name!r}, whose outputs are "
            f"{[output.name for output in model.outputs]}. Any other model is "
            "exported by Keras: `model.export(folder)`."
        )
    if len(names) > 1 or not set(names) <= set(ACTIVATIONS):
        raise UserError(
            "`model` must end in logits, or in probabilities by one softmax "
            f"or sigmoid. Received: {' and '.join(names)}."
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
    return Classifier(dense, activation, reason)


def scores_of(probabilities: tf.Tensor) -> tf.Tensor:
    """Returns the score of each class `(batch, classes)`.

    They are the probabilities; one of a single output is that of class 1, and
    what is left is that of class 0.
    """
    if probabilities.shape[-1] > 1:
        return probabilities
    return tf.concat([1.0 - probabilities, probabilities], axis=-1)


def _end(model):
    """The Dense at the end of a model, or None, and names of activations."""
    makers = {id(layer.output): layer for layer in _made_once(model)}
    [output, *others] = model.outputs
    layer, names = makers.get(id(output)), []
    while isinstance(
        layer, tf.keras.layers.Activation | tf.keras.layers.Softmax
    ):
        names.append(_activation_name(layer))
        layer = makers.get(id(layer.input))
    if others or not isinstance(layer, tf.keras.layers.Dense):
        return None, []
    names.append(_activation_name(layer))
    return layer, [name for name in names if name != "linear"]


def _made_once(model):
    """The layers that have one output."""
    for layer in model.layers:
        try:
            single = layer.output is not None
        except (AttributeError, ValueError):  # called twice, or never
            continue
        if single:
            yield layer


def _activation_name(layer):
    if isinstance(layer, tf.keras.layers.Softmax):
        return "softmax" if layer.axis == -1 else "softmax of another axis"
    for name in ("linear", *ACTIVATIONS):
        if layer.activation is getattr(tf.keras.activations, name):
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
            "`classifier_activation='sigmoid'` if it is the logit of a class; "
            "anything else is exported by Keras: `model.export(folder)`."
        )
    if units == 1:
        return "sigmoid", "one output"
    unknown = f"a loss {losses[0]!r}" if losses else "no loss"
    return "softmax", f"{ASSUMED}: the model ends in logits and has {unknown}"
