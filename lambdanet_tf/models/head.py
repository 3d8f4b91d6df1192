"""What a network ends in: a classifier, a map, a vector, or several maps."""

import dataclasses

import tensorflow as tf

from lambdanet_tf.layers import Dropout
from lambdanet_tf.models.weights import HEAD
from lambdanet_tf.models.weights import load_weights


@dataclasses.dataclass(frozen=True)
class Head:
    """The end of a network, in the words of `keras.applications`.

    Attributes:
        include_top: whether there is a classifier.
        pooling: without a classifier: None, `"avg"` or `"max"`.
        classes: number of classes.
        classifier_activation: of the classifier; None for logits.
        endpoints: None, or the names of the maps to return instead.
        dropout_rate: before the classifier.
        kernel_regularizer: of the classifier.
    """

    include_top: bool
    pooling: str | None
    classes: int
    classifier_activation: object
    endpoints: tuple[str, ...] | None
    dropout_rate: float
    kernel_regularizer: object

    def model(self, inputs, maps, last, name, weights):
        """The model from its inputs to this end, with weights if given.

        Args:
            inputs: of the model.
            maps: dict of the last map of each stage, `"c2"` to `"c5"`.
            last: the map that the classifier sees.
            name: of the model.
            weights: None or path of a file.
        """
        model = tf.keras.Model(inputs, self._outputs(maps, last), name=name)
        if weights is not None:
            load_weights(model, weights, skip=self._absent(maps))
        return model

    def _outputs(self, maps, last):
        if self.endpoints is not None:
            return {name: maps[name] for name in self._checked_endpoints(maps)}
        if self.include_top:
            return self._classifier(last)
        if self.pooling is None:
            return last
        if self.pooling == "avg":
            return tf.keras.layers.GlobalAveragePooling2D(name="pool")(last)
        if self.pooling == "max":
            return tf.keras.layers.GlobalMaxPooling2D(name="pool")(last)
        raise ValueError(
            "`pooling` must be None, 'avg' or 'max'. Received: "
            f"pooling={self.pooling!r}."
        )

    def _checked_endpoints(self, maps):
        if not self.endpoints or set(self.endpoints) - set(maps):
            raise ValueError(
                f"`endpoints` must be names among {tuple(maps)}. Received: "
                f"endpoints={self.endpoints!r}."
            )
        return self.endpoints

    def _classifier(self, x):
        if self.classes < 1:
            raise ValueError(
                "`classes` must be a positive number. Received: classes="
                f"{self.classes!r}."
            )
        x = tf.keras.layers.GlobalAveragePooling2D(name="pool")(x)
        if self.dropout_rate > 0:
            x = Dropout(self.dropout_rate, name="dropout")(x)
        return tf.keras.layers.Dense(
            self.classes,
            activation=self.classifier_activation,
            kernel_initializer=tf.keras.initializers.RandomNormal(stddev=0.01),
            kernel_regularizer=self.kernel_regularizer,
            dtype="float32",  # Under any precision.
            name=HEAD,
        )(x)

    def _absent(self, maps):
        """Beginnings of the names of layers that this end cuts off."""
        if self.endpoints is None:
            return ()
        cut = max(list(maps).index(name) for name in self.endpoints)
        return (
            HEAD,
            "head_",
            *(f"stage{name[1:]}_" for name in list(maps)[cut + 1 :]),
        )
