"""Sets of labelled images: where they are, decoded, augmented."""

from lambdanet_tf.data import augment
from lambdanet_tf.data.arrays import ArraySource
from lambdanet_tf.data.arrays import array_set
from lambdanet_tf.data.arrays import load_digits
from lambdanet_tf.data.folders import find_images
from lambdanet_tf.data.folders import read_folder
from lambdanet_tf.data.images import ArrayImage
from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import EvaluationCrop
from lambdanet_tf.data.images import as_png
from lambdanet_tf.data.images import image_dtype
from lambdanet_tf.data.names import is_image_set
from lambdanet_tf.data.names import load_images
from lambdanet_tf.data.pseudo_labels import read_pseudo_labels
from lambdanet_tf.data.pseudo_labels import unlabelled_images
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import check_images
from lambdanet_tf.data.sources import IndexedSource
from lambdanet_tf.data.sources import Shard
from lambdanet_tf.data.sources import Source
from lambdanet_tf.data.sources import StreamedSource
from lambdanet_tf.data.sources import element_seed

__all__ = [
    "ArrayImage",
    "ArraySource",
    "EncodedImage",
    "EvaluationCrop",
    "ImageSet",
    "IndexedSource",
    "Shard",
    "Source",
    "StreamedSource",
    "array_set",
    "as_png",
    "augment",
    "check_images",
    "element_seed",
    "find_images",
    "image_dtype",
    "is_image_set",
    "load_digits",
    "load_images",
    "read_folder",
    "read_pseudo_labels",
    "unlabelled_images",
]
