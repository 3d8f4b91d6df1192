"""Files to batches: sets of labelled images and their pipelines."""

from lambdanet_tf.data.arrays import ArraySource
from lambdanet_tf.data.arrays import array_set
from lambdanet_tf.data.arrays import load_digits
from lambdanet_tf.data.arrays import read_arrays
from lambdanet_tf.data.bad_images import BadImages
from lambdanet_tf.data.catalog import SOURCES
from lambdanet_tf.data.catalog import dry_run_images
from lambdanet_tf.data.catalog import load_images
from lambdanet_tf.data.decode import ArrayImage
from lambdanet_tf.data.decode import EncodedImage
from lambdanet_tf.data.evaluation_crop import EvaluationCrop
from lambdanet_tf.data.evaluation_crop import image_dtype
from lambdanet_tf.data.fake import fake_set
from lambdanet_tf.data.folders import read_folder
from lambdanet_tf.data.idx import read_idx
from lambdanet_tf.data.image_set import ImageSet
from lambdanet_tf.data.pipeline import evaluation_batches
from lambdanet_tf.data.pipeline import joined_batches
from lambdanet_tf.data.pipeline import scan_images
from lambdanet_tf.data.pipeline import training_batches
from lambdanet_tf.data.pseudo_labels import read_pseudo_labels
from lambdanet_tf.data.pseudo_labels import unlabelled_images
from lambdanet_tf.data.records import read_records
from lambdanet_tf.data.source import IndexedSource
from lambdanet_tf.data.source import Shard
from lambdanet_tf.data.source import Source
from lambdanet_tf.data.source import StreamedSource
from lambdanet_tf.data.tfds import read_tfds
from lambdanet_tf.data.throughput import Throughput
from lambdanet_tf.data.throughput import throughput

__all__ = [
    "SOURCES",
    "ArrayImage",
    "ArraySource",
    "BadImages",
    "EncodedImage",
    "EvaluationCrop",
    "ImageSet",
    "IndexedSource",
    "Shard",
    "Source",
    "StreamedSource",
    "Throughput",
    "array_set",
    "dry_run_images",
    "evaluation_batches",
    "fake_set",
    "image_dtype",
    "joined_batches",
    "load_digits",
    "load_images",
    "read_arrays",
    "read_folder",
    "read_idx",
    "read_pseudo_labels",
    "read_records",
    "read_tfds",
    "scan_images",
    "throughput",
    "training_batches",
    "unlabelled_images",
]
