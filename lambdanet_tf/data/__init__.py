"""Sets of labelled images: where they are, decoded, augmented."""

from lambdanet_tf.data import augment
from lambdanet_tf.data.arrays import ArraySource
from lambdanet_tf.data.arrays import array_set
from lambdanet_tf.data.arrays import check_pixels
from lambdanet_tf.data.arrays import load_digits
from lambdanet_tf.data.arrays import read_arrays
from lambdanet_tf.data.folders import FileSource
from lambdanet_tf.data.folders import read_folder
from lambdanet_tf.data.images import ArrayImage
from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import EvaluationCrop
from lambdanet_tf.data.images import Image
from lambdanet_tf.data.images import image_dtype
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.images import whole_image
from lambdanet_tf.data.names import SOURCES
from lambdanet_tf.data.names import is_image_set
from lambdanet_tf.data.names import load_images
from lambdanet_tf.data.pseudo_labels import read_pseudo_labels
from lambdanet_tf.data.pseudo_labels import unlabelled_images
from lambdanet_tf.data.records import read_records
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import check_images
from lambdanet_tf.data.sets import require_readable
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.data.sources import Shard
from lambdanet_tf.data.sources import Source
from lambdanet_tf.data.sources import StreamedSource
from lambdanet_tf.data.sources import element_seed
from lambdanet_tf.data.tfds import read_tfds

__all__ = [
    "SOURCES",
    "ArrayImage",
    "ArraySource",
    "EncodedImage",
    "EvaluationCrop",
    "FileSource",
    "Image",
    "ImageSet",
    "IndexedSource",
    "Shard",
    "Source",
    "StreamedSource",
    "array_set",
    "augment",
    "check_images",
    "check_pixels",
    "element_seed",
    "image_dtype",
    "is_image_set",
    "load_digits",
    "load_images",
    "open_image",
    "read_arrays",
    "read_folder",
    "read_pseudo_labels",
    "read_records",
    "read_tfds",
    "require_readable",
    "unlabelled_images",
    "whole_image",
]
