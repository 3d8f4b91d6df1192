"""The handwritten digits that scikit-learn carries: 1,797 images, 8x8."""

import numpy as np

from lambdanet_tf.data.arrays import array_split
from lambdanet_tf.data.images import ImageSet
from lambdanet_tf.data.splitting import SPLIT_SEED
from lambdanet_tf.data.splitting import three_parts
from lambdanet_tf.environment import require


def load_digits(holdout=0.1):
    """The digits, in three parts that are the same for every run.

    A fifth of the images of each class is the test set. `holdout` of the rest
    chooses the best epoch; what remains is learned from.

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
    parts = three_parts(labels, holdout)
    train, validation, test = (
        array_split(images[part], labels[part]) if len(part) else None
        for part in parts
    )
    sizes = [len(part) for part in parts]
    return ImageSet(
        name="digits",
        classes=tuple(str(name) for name in digits.target_names),
        channels=1,
        train=train,
        validation=validation,
        test=test,
        description=(
            f"scikit-learn's handwritten digits: {sizes[0]} images to learn "
            f"from, {sizes[1]} to choose the best epoch, {sizes[2]} to test "
            f"(split seed {SPLIT_SEED}, equal shares of each class)."
        ),
    )
