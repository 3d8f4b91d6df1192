"""The input pipeline of a recipe: its images as batches for all replicas."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.data import augment
from lambdanet_tf.data import mixing
from lambdanet_tf.data.randaugment import make_randaugment
from lambdanet_tf.training.recipe import Recipe

_LARGEST_EVALUATION_BATCH = 128
_LARGEST_SEED = 2**31 - 1


def recipe_augment(recipe: Recipe) -> Callable[..., tf.Tensor]:
    """Returns the augmentation of a recipe: `(image, seed) -> pixels`."""
    steps = []
    if recipe.augmentation == "pad_crop":
        steps.append(
            functools.partial(augment.pad_and_crop, padding=recipe.padding)
        )
    if recipe.augmentation == "affine":
        steps.append(
            functools.partial(
                augment.random_affine,
                rotation=recipe.rotation,
                shift=recipe.shift,
                zoom=recipe.zoom,
            )
        )
    if recipe.flip:
        steps.append(augment.random_flip)
    if recipe.randaugment_layers:
        distort = make_randaugment(
            recipe.randaugment_layers, recipe.randaugment_magnitude
        )
        steps.append(lambda pixels, seed: distort(pixels))

    def apply(image, seed):
        fold = tf.random.experimental.stateless_fold_in
        size = recipe.image_size
        if recipe.augmentation == "random_crop":
            pixels = augment.random_crop(image, seed, size, recipe.min_area)
        else:
            pixels = augment.whole_image(image, size)
        for number, step in enumerate(steps, start=1):
            pixels = step(pixels, fold(seed, number))
        return pixels

    return apply


def evaluation_crop(recipe: Recipe) -> data.EvaluationCrop:
    """Returns the evaluation preprocessing of a recipe: `image -> pixels`."""
    return data.EvaluationCrop(
        (recipe.image_size, recipe.image_size),
        recipe.evaluation_crop,
        data.image_dtype(recipe.precision),
    )


def one_hot_and_mix(recipe: Recipe, num_classes: int) -> Callable[..., Any]:
    """Returns what makes labels one-hot, and mixes the images of a batch.

    The result is a function `(images, labels, seed) -> (images, labels)`.
    """
    for mix, alpha in (
        (mixing.mixup, recipe.mixup),
        (mixing.cutmix, recipe.cutmix),
    ):
        if alpha:
            return functools.partial(mix, num_classes=num_classes, alpha=alpha)
    return lambda images, labels, seed: (
        images,
        mixing.probabilities(labels, num_classes),
    )


class InputPipeline:
    """The batches of a recipe, for all replicas of a strategy.

    Labels are one-hot: float32 `(batch, classes)`. With pseudo-labels a part
    of each training batch is pseudo-labelled, and its labels are the
    probabilities of the teacher; an epoch is a pass over the labelled images.

    Args:
        recipe: sizes, augmentation, seed.
        images: the image set.
        strategy: None for the current one.
        bad_images: list of what cannot be read; None for a new one.

    Attributes:
        image_shape: (height, width, channels).
        steps_per_epoch: whole batches of the labelled training images.

    The arguments are attributes, too.

    Raises:
        ValueError: if the batch does not fit the training set or the replicas,
            or there are no such pseudo-labels.
    """

    def __init__(
        self,
        recipe: Recipe,
        images: data.ImageSet,
        strategy: tf.distribute.Strategy | None = None,
        bad_images: data.BadImages | None = None,
    ):
        self.recipe = recipe
        self._pseudo_labelled = None
        if recipe.pseudo_labels:
            self._pseudo_labelled = data.read_pseudo_labels(
                recipe.pseudo_labels,
                images.classes,
                images.channels,
                recipe.shuffle_buffer,
            )
            images = _with_note(images, recipe, self._pseudo_labelled)
        self.images = images
        self.strategy = strategy or tf.distribute.get_strategy()
        self.bad_images = bad_images or data.BadImages()
        size = recipe.image_size
        self.image_shape = (size, size, images.channels)
        self._per_replica = self._share(recipe.batch_size)
        replicas = self.strategy.num_replicas_in_sync
        labelled = replicas * self._labelled(self._per_replica)
        self.steps_per_epoch = images.train.num_images // labelled
        if not self.steps_per_epoch:
            raise ValueError(
                "`batch_size` must not be larger than the training set. "
                f"Received: {recipe.batch_size} for {images.train.num_images} "
                "images."
            )

    def training(self, step: int = 0) -> tf.distribute.DistributedDataset:
        """Returns the endless training batches from a step on.

        Elements are (images, labels).
        """

        def make(context):
            return self.dataset(_shard(context), step=step)

        return self.strategy.distribute_datasets_from_function(make)

    def dataset(
        self,
        shard: data.Shard | None = None,
        batch_size: int | None = None,
        step: int = 0,
    ) -> tf.data.Dataset:
        """Returns the endless training batches of one shard, on no device.

        Args:
            shard: None for all images.
            batch_size: None for the batch of one replica.
            step: the first one.
        """
        recipe = self.recipe
        size = batch_size or self._per_replica
        mix = one_hot_and_mix(recipe, len(self.images.classes))
        batches = functools.partial(
            data.training_batches,
            augment=recipe_augment(recipe),
            image_shape=self.image_shape,
            shard=shard,
            dtype=data.image_dtype(recipe.precision),
            bad_images=self.bad_images,
        )
        replicas = self.strategy.num_replicas_in_sync
        if self._pseudo_labelled is None:
            start = step * replicas * size
            return batches(
                self.images.train, size, mix=mix, seed=recipe.seed, start=start
            )
        labelled = self._labelled(size)
        others = size - labelled
        return data.joined_batches(
            batches(
                self.images.train,
                labelled,
                seed=recipe.seed,
                start=step * replicas * labelled,
            ),
            batches(
                self._pseudo_labelled,
                others,
                seed=_LARGEST_SEED - recipe.seed,
                start=step * replicas * others,
            ),
            mix,
            recipe.seed,
            start=step * replicas,
            shard=shard,
        )

    def evaluation(
        self, source: data.Source
    ) -> tf.distribute.DistributedDataset:
        """Returns each image of a source once.

        Elements are (images, labels, weights); the last batches are filled up
        with images of weight 0.
        """
        replicas = self.strategy.num_replicas_in_sync
        per_replica = max(
            min(self.recipe.batch_size, _LARGEST_EVALUATION_BATCH * replicas)
            // replicas,
            1,
        )
        num_batches = -(-source.num_images // (per_replica * replicas))
        crop = evaluation_crop(self.recipe)

        def one_hot(images, labels, weights):
            return images, tf.one_hot(labels, len(self.images.classes)), weights

        def make(context):
            per_pipeline = replicas // context.num_input_pipelines
            return data.evaluation_batches(
                source,
                per_replica,
                crop,
                self.image_shape,
                shard=_shard(context),
                num_batches=num_batches * per_pipeline,
                dtype=crop.dtype,
                bad_images=self.bad_images,
            ).map(one_hot)

        return self.strategy.distribute_datasets_from_function(make)

    def scan(self, source: data.Source) -> tf.data.Dataset:
        """Returns each image of a source once, as Keras' `evaluate` takes them.

        Elements are (images, labels), on no device; the last batch may be
        smaller. (In those of `evaluation`, which have a static shape, Keras
        would divide the loss by images that are none.)
        """

        def real(images, labels, weights):
            is_real = weights > 0.0
            labels = tf.one_hot(labels, len(self.images.classes))
            return images[is_real], labels[is_real]

        crop = evaluation_crop(self.recipe)
        return data.evaluation_batches(
            source,
            min(self.recipe.batch_size, _LARGEST_EVALUATION_BATCH),
            crop,
            self.image_shape,
            dtype=crop.dtype,
            bad_images=self.bad_images,
        ).map(real)

    def _labelled(self, batch_size):
        """How many images of a batch are labelled ones."""
        if self._pseudo_labelled is None:
            return batch_size
        ratio = self.recipe.pseudo_label_ratio
        labelled = round(batch_size / (1.0 + ratio))
        if not 0 < labelled < batch_size:
            raise ValueError(
                "`pseudo_label_ratio` must leave both kinds of images in the "
                f"batch of a replica. Received: {ratio} for {batch_size} "
                "images."
            )
        return labelled

    def _share(self, batch_size):
        replicas = self.strategy.num_replicas_in_sync
        if batch_size % replicas:
            raise ValueError(
                "`batch_size` must be divisible by the number of replicas. "
                f"Received: {batch_size} for {replicas} replicas."
            )
        return batch_size // replicas


def _with_note(images, recipe, pseudo_labelled):
    """The image set, with the pseudo-labelled images in its description."""
    note = (
        f" {pseudo_labelled.num_images:,} pseudo-labelled images of "
        f"{recipe.pseudo_labels}, {recipe.pseudo_label_ratio:g} for each "
        "labelled one."
    )
    return dataclasses.replace(images, description=images.description + note)


def _shard(context):
    return data.Shard(context.input_pipeline_id, context.num_input_pipelines)
