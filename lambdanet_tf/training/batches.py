"""The batches of a recipe: endless for training, else each image once."""

import dataclasses
import itertools
import math
from collections.abc import Callable

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.data import augment
from lambdanet_tf.data.images import Image
from lambdanet_tf.data.images import image_dtype
from lambdanet_tf.data.images import random_crop
from lambdanet_tf.data.images import resized
from lambdanet_tf.data.sets import require_readable
from lambdanet_tf.environment import require
from lambdanet_tf.training.recipe import Recipe

_MAX_EVALUATION_BATCH = 128
_MAX_SEED = 2**31 - 1


class InputPipeline:
    """The batches of a recipe, for all replicas of a strategy.

    Labels are one-hot: float32 `(batch, classes)`. If the recipe has
    pseudo-labels, some images of each training batch are pseudo-labelled, with
    the teacher's probabilities as labels. An epoch is a pass over the labelled
    images.

    The recipe's seed determines the training batches. They can begin at any
    step and repeat exactly, with any number of threads. There are two
    exceptions: corrupt images shift the images after them, and RandAugment has
    its own generator.

    Args:
        recipe: sizes, augmentation and seed; also an attribute.
        images: the image set; also an attribute.
        strategy: None for the current one; also an attribute.

    Attributes:
        steps_per_epoch: number of full batches of labelled training images.

    Examples:
        >>> pipeline = InputPipeline(
        ...     training.resolve("digits"), data.load_digits()
        ... )
        >>> pipeline.steps_per_epoch
        20
    """

    def __init__(
        self,
        recipe: Recipe,
        images: data.ImageSet,
        strategy: tf.distribute.Strategy | None = None,
    ):
        self.recipe, self.images = recipe, images
        self.strategy = strategy or tf.distribute.get_strategy()
        self._crop = evaluation_crop(recipe)
        self._augment = augmentation(recipe)
        self._evaluations = {}
        replicas = self.strategy.num_replicas_in_sync
        size, rest = divmod(recipe.batch_size, replicas)
        # The sources of a replica's batch, each with its size and seed.
        self._trained_on = [(images.train, size, recipe.seed)]
        if recipe.pseudo_labels:
            self._add_pseudo_labels()
        labelled = replicas * self._trained_on[0][1]
        self.steps_per_epoch = images.train.num_images // max(labelled, 1)
        if rest or not self.steps_per_epoch:
            raise ValueError(
                "`batch_size` must be divisible by the number of replicas "
                f"({replicas}) and at most the number of training images "
                f"({images.train.num_images}). Received: {recipe.batch_size}."
            )
        require_readable(images)

    def _add_pseudo_labels(self):
        """Fills a part of each batch with pseudo-labelled images."""
        recipe, images = self.recipe, self.images
        ((train, size, seed),) = self._trained_on
        labelled = round(size / (1.0 + recipe.pseudo_label_ratio))
        if not 0 < labelled < size:
            raise ValueError(
                "`pseudo_label_ratio` must leave labelled and pseudo-labelled "
                "images in the batch of a replica. Received: "
                f"{recipe.pseudo_label_ratio} for {size} images."
            )
        source = data.read_pseudo_labels(
            recipe.pseudo_labels,
            images.classes,
            images.channels,
            recipe.shuffle_buffer,
        )
        other = source, size - labelled, _MAX_SEED - seed
        self._trained_on = [(train, labelled, seed), other]
        note = f"{source.num_images:,} pseudo-labelled images"
        self.images = dataclasses.replace(images, notes=(*images.notes, note))

    def training(self, step: int = 0) -> tf.distribute.DistributedDataset:
        """Returns endless batches, (images, labels), from a step on."""
        batches = self.strategy.distribute_datasets_from_function(
            lambda context: self.training_batches(step, _shard(context))
        )
        if not isinstance(batches, tf.data.Dataset):
            batches.map = _refuse_class_weight  # Keras calls it in `fit`.
        return batches

    def training_batches(
        self, step: int = 0, shard: data.Shard | None = None
    ) -> tf.data.Dataset:
        """Returns endless batches of a replica, for one shard."""
        first = step * self.strategy.num_replicas_in_sync

        def part(source, size, seed):
            def prepare(image, label, position):
                pixels = self._augment(image, data.element_seed(seed, position))
                return self._pair(pixels, label)

            elements = source.stream(seed, first * size, shard)
            examples = source.examples(elements, prepare)
            return examples.batch(size, drop_remainder=True)

        def join(*parts):
            columns = zip(*parts, strict=True)
            return tuple(tf.concat(column, axis=0) for column in columns)

        parts = tuple(part(*each) for each in self._trained_on)
        joined = tf.data.Dataset.zip(parts).map(join)
        return joined.prefetch(tf.data.AUTOTUNE)

    def evaluation(
        self, source: data.Source
    ) -> tf.distribute.DistributedDataset:
        """Returns each image of a source once.

        Elements are (images, labels, weights, positions in `source.scan`).
        Images with weight 0 pad the last batches, so that all replicas take the
        same number of steps.
        """
        if source not in self._evaluations:
            self._evaluations[source] = (
                self.strategy.distribute_datasets_from_function(
                    lambda context: self._padded(source, context)
                )
            )
        return self._evaluations[source]

    def _padded(self, source, context):
        """Returns the evaluation batches of one of the input pipelines."""
        replicas = self.strategy.num_replicas_in_sync
        count = context.num_input_pipelines
        size = min(self.recipe.batch_size // replicas, _MAX_EVALUATION_BATCH)
        shards = (data.Shard(index, count) for index in range(count))
        largest = max(map(source.shard_size, shards))
        number = math.ceil(largest * count / (size * replicas))
        examples = self._evaluated(source, _shard(context))
        filled = examples.concatenate(_zeros(examples).repeat())
        batches = filled.batch(size, drop_remainder=True)
        return batches.take(number * replicas // count).prefetch(
            tf.data.AUTOTUNE
        )

    def scan(self, source: data.Source) -> tf.data.Dataset:
        """Returns each image of a source once, for Keras' `evaluate`.

        Elements are (images, labels). Replicas share each batch equally except
        the last, of which each gets at least one image. (In `evaluation`, Keras
        would also divide the loss by the padding.)

        The dataset has the number of batches without corrupt images.
        Otherwise Keras 3 would warn after each evaluation.
        """
        size = min(self.recipe.batch_size, _MAX_EVALUATION_BATCH)
        number, replicas = source.num_images, self.strategy.num_replicas_in_sync
        sizes = range(replicas, number + 1, replicas)
        fitting = (x for x in sizes if not 0 < number % x < replicas)
        size = min(fitting, key=lambda x: abs(x - size), default=size)
        examples = self._evaluated(source).map(lambda x, y, *_: (x, y))
        # TensorFlow cannot know that this dataset is empty.
        nothing = _zeros(examples).filter(lambda *example: False).repeat()
        filled = examples.concatenate(nothing).take(number)
        return filled.batch(size).prefetch(tf.data.AUTOTUNE)

    def _evaluated(self, source, shard=None):
        """Returns images with labels, weights of 1, and positions."""

        def prepare(image, label, position):
            return *self._pair(self._crop(image), label), tf.ones([]), position

        return source.examples(source.scan(shard), prepare)

    def _pair(self, pixels, label):
        """Returns an input of the network, and class probabilities."""
        shape = (*self._crop.size, self.images.channels)
        if label.shape.rank == 0:  # It is not from a teacher.
            label = tf.one_hot(label, len(self.images.classes))
        return tf.cast(tf.ensure_shape(pixels, shape), self._crop.dtype), label


def _refuse_class_weight(function):
    raise ValueError(
        "`class_weight` of `model.fit` works on one device only. With several "
        "replicas, weight the classes in the loss."
    )


def augmentation(
    recipe: Recipe,
) -> Callable[[Image, tf.Tensor], tf.Tensor]:
    """Returns the augmentation of a recipe: from image and seed to pixels."""
    size = recipe.image_size
    if recipe.randaugment_layers:  # In a graph, the error would be unreadable.
        require("official.vision.ops.augment", extra="garden")

    def augmented(image, seed):
        fold = tf.random.experimental.stateless_fold_in
        seeds = (fold(seed, number) for number in itertools.count(1))
        if recipe.augmentation == "random_crop":
            pixels = random_crop(image, seed, size, recipe.min_area)
        else:
            pixels = resized(image.decode(), (size, size))
        if recipe.augmentation == "pad_crop":
            pixels = augment.pad_and_crop(pixels, next(seeds), recipe.padding)
        if recipe.augmentation == "affine":
            pixels = augment.random_affine(
                pixels, next(seeds), recipe.rotation, recipe.shift, recipe.zoom
            )
        if recipe.flip:
            flip = tf.image.stateless_random_flip_left_right
            pixels = flip(pixels, next(seeds))
        if recipe.randaugment_layers:
            pixels = augment.randaugment(
                pixels, recipe.randaugment_layers, recipe.randaugment_magnitude
            )
        return pixels

    return augmented


def evaluation_crop(recipe: Recipe) -> data.EvaluationCrop:
    """Returns the evaluation preprocessing of a recipe."""
    return data.EvaluationCrop(
        (recipe.image_size, recipe.image_size),
        recipe.evaluation_crop,
        image_dtype(recipe.precision),
    )


def _zeros(examples):
    """Returns a dataset of one example of zeros, also with weight 0."""
    specs = examples.element_spec
    return tf.data.Dataset.from_tensors(
        tuple(tf.zeros(spec.shape, spec.dtype) for spec in specs)
    )


def _shard(context):
    return data.Shard(context.input_pipeline_id, context.num_input_pipelines)
