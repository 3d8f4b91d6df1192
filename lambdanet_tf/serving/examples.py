"""The examples of an export: images, and what the Keras model makes of them."""

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.serving.classifier import classifier_of
from lambdanet_tf.serving.classifier import probabilities_of
from lambdanet_tf.serving.inference import Inference

EXAMPLES_FILE = "assets.extra/examples.npz"
EXAMPLE_IMAGE = "assets.extra/example.png"

_NUM_NOISE = 3

# Features, logits and probabilities by name.
Outputs = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Examples:
    """Images, and the outputs of a Keras model for them.

    Attributes:
        images: uint8 `(images, height, width, channels)`.
        labels: class of each image; empty if the images are noise.
        of_tensors: `features`, `logits` and `probabilities` of the images.
        of_files: the same of the images as files, which the export crops.
    """

    images: np.ndarray
    labels: np.ndarray
    of_tensors: Outputs
    of_files: Outputs

    @classmethod
    def computed(
        cls,
        model: tf.keras.Model,
        network: Inference,
        examples: tuple[np.ndarray, np.ndarray] | None,
    ) -> "Examples":
        """Computes the outputs of a Keras model.

        Args:
            model: the Keras model.
            network: what is served of it.
            examples: images in [0, 255] and labels; None for noise.
        """
        if examples is None:
            shape = (_NUM_NOISE, *network.image_shape)
            generator = np.random.default_rng(0)
            examples = generator.uniform(0, 255, shape), np.zeros(0, np.int64)
        images = np.rint(examples[0]).clip(0, 255).astype(np.uint8)
        cropped = [
            network.crop(data.ArrayImage(tf.constant(image)))
            for image in images
        ]
        activation = network.options.classifier_activation
        return cls(
            images,
            np.asarray(examples[1]),
            keras_outputs(model, images, activation),
            keras_outputs(model, tf.stack(cropped), activation),
        )

    def write(self, folder: pathlib.Path) -> None:
        """Writes the examples into a version folder."""
        (folder / EXAMPLES_FILE).parent.mkdir(exist_ok=True)
        outputs = {f"of_tensors/{k}": v for k, v in self.of_tensors.items()}
        outputs |= {f"of_files/{k}": v for k, v in self.of_files.items()}
        np.savez(
            folder / EXAMPLES_FILE,
            images=self.images,
            labels=self.labels,
            **outputs,
        )
        if len(self.labels):
            (folder / EXAMPLE_IMAGE).write_bytes(self.encoded()[0])

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Examples":
        """Reads the examples of an export."""
        fields = {"of_tensors": {}, "of_files": {}}
        with np.load(folder / EXAMPLES_FILE) as arrays:
            for key, array in arrays.items():
                kind, _, name = key.partition("/")
                if name:
                    fields[kind][name] = array
                else:
                    fields[kind] = array
        return cls(**fields)

    def encoded(self) -> list[bytes]:
        """Returns the images as PNG files."""
        return [tf.io.encode_png(image).numpy() for image in self.images]


def keras_outputs(
    model: tf.keras.Model, images: np.ndarray | tf.Tensor, activation: str
) -> Outputs:
    """Returns features, logits and probabilities of a Keras model.

    Args:
        model: see `Inference`.
        images: in [0, 255].
        activation: "softmax" or "sigmoid".
    """
    head = classifier_of(model, activation).dense
    network = tf.keras.Model(model.inputs, head.input)
    features = network.predict(tf.cast(images, tf.float32), verbose=0)
    kernel, *bias = head.get_weights()
    logits = features @ kernel + sum(bias)
    return {
        "features": features,
        "logits": logits,
        "probabilities": probabilities_of(logits, activation).numpy(),
    }
