"""The handwritten digits that scikit-learn carries: 1,797 images, 8x8."""

import numpy as np

from lambdanet_tf.data.arrays import array_split
from lambdanet_tf.data.extras import require
from lambdanet_tf.data.images import ImageSet

TEST_SHARE = 0.2
SPLIT_SEED = 2102


def load_digits(holdout=0.1):
    """The digits, in three parts that are the same for every run.

    A fifth of the images of each class is the test set. `holdout` of the rest
    chooses the best epoch; what remains is learned from. The parts depend on
    `SPLIT_SEED` alone.

    Args:
        holdout: float. Share of the training images that is held out.

    Returns:
        An `ImageSet`, pixels float32 in [0, 255].

    Raises:
        ImportError: if scikit-learn is not installed.
    """
    digits = require("sklearn.datasets", extra="data").load_digits()
    images = digits.images[..., np.newaxis].astype(np.float32) * (255 / 16)
    labels = digits.target.astype(np.int32)

    generator = np.random.default_rng(SPLIT_SEED)
    rest, test = stratified(labels, TEST_SHARE, generator)
    train, validation = stratified(labels[rest], holdout, generator)
    train, validation = rest[train], rest[validation]

    def part(chosen):
        return array_split(images[chosen], labels[chosen])

    return ImageSet(
        name="digits",
        classes=tuple(str(name) for name in digits.target_names),
        channels=1,
        train=part(train),
        validation=part(validation) if len(validation) else None,
        test=part(test),
        description=(
            f"scikit-learn's handwritten digits: {len(train)} images to learn "
            f"from, {len(validation)} to choose the best epoch, {len(test)} "
            f"to test (split seed {SPLIT_SEED}, equal shares of each class)."
        ),
    )


def stratified(labels, share, generator):
    """Divides examples so that each class gives the same share.

    Args:
        labels: array of class indices.
        share: float. What part of each class goes into the second part,
            rounded to whole examples.
        generator: `np.random.Generator`.

    Returns:
        Two sorted arrays of indices that together are all of them.
    """
    second = [
        generator.permutation(members)[: round(share * len(members))]
        for members in (
            np.flatnonzero(labels == label) for label in np.unique(labels)
        )
    ]
    second = np.sort(np.concatenate(second))
    first = np.setdiff1d(np.arange(len(labels)), second)
    return first, second
