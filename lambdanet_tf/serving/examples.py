"""The examples of an export: images, and what the Keras model makes of them."""

import pathlib

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.serving.inference import Inference

EXAMPLES_FILE = "assets.extra/examples.npz"
EXAMPLE_IMAGE = "assets.extra/example.png"

# Outputs are those of the images as tensors, and as files, which are cropped.
TENSORS = "of_tensors"
FILES = "of_files"

_NUM_NOISE = 3


def with_outputs(
    network: Inference, examples: tuple[np.ndarray, np.ndarray] | None
) -> dict[str, np.ndarray]:
    """Computes what the Keras model makes of images.

    Args:
        network: the classifier.
        examples: images in [0, 255] and labels; None for noise.

    Returns:
        `images`, uint8 `(images, height, width, channels)`; `labels`, the
        class of each, empty if the images are noise; and features, logits and
        probabilities, as `of_tensors/logits`.
    """
    if examples is None:
        shape = (_NUM_NOISE, *network.image_shape)
        generator = np.random.default_rng(0)
        examples = generator.uniform(0, 255, shape), np.zeros(0, np.int64)
    images = np.rint(examples[0]).clip(0, 255).astype(np.uint8)
    cropped = [
        network.crop(data.ArrayImage(tf.constant(image))) for image in images
    ]
    arrays = {"images": images, "labels": np.asarray(examples[1])}
    for kind, inputs in ((TENSORS, images), (FILES, tf.stack(cropped))):
        for name, outputs in network.expected_outputs(inputs).items():
            arrays[f"{kind}/{name}"] = outputs
    return arrays


def write(folder: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes examples into a version folder."""
    np.savez(folder / EXAMPLES_FILE, **arrays)
    if len(arrays["labels"]):
        image = encoded(arrays["images"][:1])[0]
        (folder / EXAMPLE_IMAGE).write_bytes(image)


def read(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the examples of an export, as `with_outputs` returns them."""
    with np.load(folder / EXAMPLES_FILE) as arrays:
        return dict(arrays)


def encoded(images: np.ndarray) -> list[bytes]:
    """Returns images as PNG files."""
    return [tf.io.encode_png(image).numpy() for image in images]
