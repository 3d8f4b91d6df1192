from lambdanet_tf.data import augment as augment
from lambdanet_tf.data.arrays import array_set as array_set
from lambdanet_tf.data.arrays import load_digits as load_digits
from lambdanet_tf.data.images import ArrayImage as ArrayImage
from lambdanet_tf.data.images import EncodedImage as EncodedImage
from lambdanet_tf.data.images import EvaluationCrop as EvaluationCrop
from lambdanet_tf.data.names import is_image_set as is_image_set
from lambdanet_tf.data.names import load_images as load_images
from lambdanet_tf.data.pseudo_labels import (
    read_pseudo_labels as read_pseudo_labels,
)
from lambdanet_tf.data.pseudo_labels import (
    unlabelled_images as unlabelled_images,
)
from lambdanet_tf.data.sets import ImageSet as ImageSet
from lambdanet_tf.data.sets import check_images as check_images
from lambdanet_tf.data.sources import IndexedSource as IndexedSource
from lambdanet_tf.data.sources import Shard as Shard
from lambdanet_tf.data.sources import Source as Source
from lambdanet_tf.data.sources import element_seed as element_seed
