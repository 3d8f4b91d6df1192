"""The pipelines of a recipe."""

import functools

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.data import augment
from lambdanet_tf.data import mixing
from lambdanet_tf.data.randaugment import make_randaugment

_LARGEST_EVALUATION_BATCH = 128


def variation(recipe):
    """How a recipe makes a training image from an image of its set.

    Args:
        recipe: `Recipe`.

    Returns:
        A callable `(image, seed) -> pixels`.
    """
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

    def vary(image, seed):
        fold = tf.random.experimental.stateless_fold_in
        size = recipe.image_size
        if recipe.augmentation == "random_crop":
            pixels = augment.random_crop(image, seed, size, recipe.min_area)
        else:
            pixels = augment.whole_image(image, size)
        for number, step in enumerate(steps, start=1):
            pixels = step(pixels, fold(seed, number))
        return pixels

    return vary


def evaluation_crop(recipe):
    """How a recipe makes an evaluation image from an image of its set.

    Args:
        recipe: `Recipe`.

    Returns:
        A callable `image -> pixels`.
    """
    return data.EvaluationCrop(
        (recipe.image_size, recipe.image_size),
        recipe.evaluation_crop,
        data.image_dtype(recipe.precision),
    )


def mixture(recipe, num_classes):
    """How a recipe mixes the images of a batch.

    Args:
        recipe: `Recipe`.
        num_classes: int.

    Returns:
        A callable `(images, labels, seed) -> (images, labels)`, or None.
    """
    for mix, alpha in (
        (mixing.mixup, recipe.mixup),
        (mixing.cutmix, recipe.cutmix),
    ):
        if alpha:
            return functools.partial(mix, num_classes=num_classes, alpha=alpha)
    return None


class Inputs:
    """The batches of a run, for all replicas of a strategy.

    Args:
        recipe: `Recipe`.
        images: `ImageSet`.
        strategy: `tf.distribute.Strategy`, or None for the current one.
        bad_images: `BadImages` or None.

    The arguments are attributes, and so are `image_shape` and
    `steps_per_epoch`.

    Raises:
        ValueError: if the batch does not fit the training set or the replicas.
    """

    def __init__(self, recipe, images, strategy=None, bad_images=None):
        self.recipe, self.images = recipe, images
        self.strategy = strategy or tf.distribute.get_strategy()
        self.bad_images = bad_images or data.BadImages()
        size = recipe.image_size
        self.image_shape = (size, size, images.channels)
        self.steps_per_epoch = images.train.num_images // recipe.batch_size
        if not self.steps_per_epoch:
            raise ValueError(
                "`batch_size` must not be larger than the training set. "
                f"Received: {recipe.batch_size} for {images.train.num_images} "
                "images."
            )
        self._per_replica(recipe.batch_size)

    def training(self, step=0):
        """The endless training batches, from the given step on."""
        start = step * self.recipe.batch_size

        def make(context):
            return self.pipeline(_shard(context), start=start)

        return self.strategy.distribute_datasets_from_function(make)

    def pipeline(self, share=None, batch_size=None, start=0):
        """The endless training batches of one input pipeline, on no device.

        Args:
            share: `Share` or None for all images.
            batch_size: int or None for the batch of one replica.
            start: int. Images (of all shares together) to leave out.

        Returns:
            A `tf.data.Dataset` of `(images, labels)`.
        """
        recipe = self.recipe
        return data.training_batches(
            self.images.train,
            batch_size or self._per_replica(recipe.batch_size),
            variation(recipe),
            self.image_shape,
            mixture(recipe, len(self.images.classes)),
            seed=recipe.seed,
            start=start,
            shard=share,
            dtype=data.image_dtype(recipe.precision),
            bad_images=self.bad_images,
        )

    def evaluation(self, split):
        """Each image of a split once."""
        replicas = self.strategy.num_replicas_in_sync
        per_replica = max(
            min(self.recipe.batch_size, _LARGEST_EVALUATION_BATCH * replicas)
            // replicas,
            1,
        )
        num_batches = -(-split.num_images // (per_replica * replicas))
        crop = evaluation_crop(self.recipe)

        def make(context):
            per_pipeline = replicas // context.num_input_pipelines
            return data.evaluation_batches(
                split,
                per_replica,
                crop,
                self.image_shape,
                shard=_shard(context),
                num_batches=num_batches * per_pipeline,
                dtype=crop.dtype,
                bad_images=self.bad_images,
            )

        return self.strategy.distribute_datasets_from_function(make)

    def _per_replica(self, batch_size):
        replicas = self.strategy.num_replicas_in_sync
        if batch_size % replicas:
            raise ValueError(
                "`batch_size` must be divisible by the number of replicas. "
                f"Received: {batch_size} for {replicas} replicas."
            )
        return batch_size // replicas


def _shard(context):
    return data.Shard(context.input_pipeline_id, context.num_input_pipelines)
