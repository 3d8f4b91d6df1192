"""Files to batches: sets of labelled images and their pipelines."""

from lambdanet_tf.data.arrays import array_set
from lambdanet_tf.data.arrays import array_split
from lambdanet_tf.data.arrays import read_arrays
from lambdanet_tf.data.bad_images import BadImages
from lambdanet_tf.data.decode import ArrayImage
from lambdanet_tf.data.decode import EncodedImage
from lambdanet_tf.data.digits import load_digits
from lambdanet_tf.data.evaluation import EvaluationCrop
from lambdanet_tf.data.evaluation import image_dtype
from lambdanet_tf.data.folders import read_folder
from lambdanet_tf.data.images import ImageSet
from lambdanet_tf.data.images import Share
from lambdanet_tf.data.images import Split
from lambdanet_tf.data.pipeline import evaluation_batches
from lambdanet_tf.data.pipeline import training_batches
from lambdanet_tf.data.records import read_records
from lambdanet_tf.data.sources import SOURCES
from lambdanet_tf.data.sources import load_images
from lambdanet_tf.data.tfds import read_tfds
from lambdanet_tf.data.throughput import Throughput
from lambdanet_tf.data.throughput import throughput

__all__ = [
    "SOURCES",
    "ArrayImage",
    "BadImages",
    "EncodedImage",
    "EvaluationCrop",
    "ImageSet",
    "Share",
    "Split",
    "Throughput",
    "array_set",
    "array_split",
    "evaluation_batches",
    "image_dtype",
    "load_digits",
    "load_images",
    "read_arrays",
    "read_folder",
    "read_records",
    "read_tfds",
    "throughput",
    "training_batches",
]
