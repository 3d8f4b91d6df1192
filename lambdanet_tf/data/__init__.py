"""Files to batches: sets of labelled images and their pipelines."""

from lambdanet_tf.data.arrays import array_split
from lambdanet_tf.data.digits import load_digits
from lambdanet_tf.data.images import ImageSet
from lambdanet_tf.data.images import Share
from lambdanet_tf.data.images import Split
from lambdanet_tf.data.pipeline import evaluation_batches
from lambdanet_tf.data.pipeline import training_batches

__all__ = [
    "ImageSet",
    "Share",
    "Split",
    "array_split",
    "evaluation_batches",
    "load_digits",
    "training_batches",
]
