"""The pipelines of a recipe."""

import functools

from lambdanet_tf import data
from lambdanet_tf.data import augment


def load_images(recipe):
    """The images of a recipe.

    Args:
        recipe: `Recipe`.

    Returns:
        An `ImageSet`.

    Raises:
        ValueError: if there is no such set.
    """
    if recipe.data == "digits":
        return data.load_digits(recipe.holdout)
    raise ValueError(f"`data` must be digits. Received: {recipe.data!r}.")


def variation(recipe):
    """How a recipe varies its training images.

    Args:
        recipe: `Recipe`.

    Returns:
        A callable `(image, seed) -> image`, or None for not at all.
    """
    if recipe.augmentation == "affine":
        return functools.partial(
            augment.random_affine,
            rotation=recipe.rotation,
            shift=recipe.shift,
            zoom=recipe.zoom,
        )
    return None


class Inputs:
    """The batches of a run.

    Args:
        recipe: `Recipe`.
        images: `ImageSet`.
        strategy: `tf.distribute.Strategy`.

    Raises:
        ValueError: if the training set is smaller than one batch.
    """

    def __init__(self, recipe, images, strategy):
        self._recipe, self._images, self._strategy = recipe, images, strategy
        self.steps_per_epoch = images.train.num_images // recipe.batch_size
        if not self.steps_per_epoch:
            raise ValueError(
                "`batch_size` must not be larger than the training set. "
                f"Received: {recipe.batch_size} for {images.train.num_images} "
                "images."
            )

    def training(self, step=0):
        """The endless training batches, from the given step on."""
        return data.training_batches(
            self._images.train,
            self._recipe.batch_size,
            variation(self._recipe),
            seed=self._recipe.seed,
            start=step * self._recipe.batch_size,
        )

    def evaluation(self, split):
        """Each image of a split once."""
        return data.evaluation_batches(split, min(self._recipe.batch_size, 128))
