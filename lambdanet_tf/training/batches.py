"""The batches of a recipe, in the order of an image's way.

Training: `Source.stream` (order and shard), `_augment` (decoded and cropped),
`Source.batches`, then the batches of all sources are joined and mixed.
Evaluation: `Source.scan`, the central crop, batches of equal size.
"""

import dataclasses
import itertools

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.data import augment
from lambdanet_tf.training.recipe import Recipe

_MAX_EVALUATION_BATCH = 128
_MAX_SEED = 2**31 - 1


class InputPipeline:
    """The batches of a recipe, for all replicas of a strategy.

    Labels are one-hot: float32 `(batch, classes)`. With pseudo-labels a part
    of each training batch is pseudo-labelled, and its labels are the
    probabilities of the teacher; an epoch is a pass over the labelled images.

    Training batches are a function of the recipe's seed: they can begin at any
    step and repeat exactly, whatever the number of threads. (Two exceptions:
    images that cannot be read shift what follows them, and RandAugment draws
    from a generator of its own.)

    Args:
        recipe: sizes, augmentation, seed.
        images: the image set.
        strategy: None for the current one.

    Attributes:
        sources: all that is read, by name: the parts of the image set, and
            `pseudo_labels` if there are any.
        image_shape: (height, width, channels).
        steps_per_epoch: whole batches of the labelled training images.

    The arguments are attributes, too.

    Raises:
        ValueError: if the batch does not fit the training set or the replicas,
            no image of a part can be read, or there are no such pseudo-labels.

    Examples:
        >>> images = data.fake_set("8x8x1", images=200)
        >>> pipeline = InputPipeline(training.resolve("digits"), images)
        >>> pipeline.image_shape, pipeline.steps_per_epoch
        ((8, 8, 1), 2)
    """

    def __init__(
        self,
        recipe: Recipe,
        images: data.ImageSet,
        strategy: tf.distribute.Strategy | None = None,
    ):
        self.recipe = recipe
        self.sources: dict[str, data.Source] = dict(images.parts)
        if recipe.pseudo_labels:
            images = self._add_pseudo_labels(images)
        self.images = images
        self.strategy = strategy or tf.distribute.get_strategy()
        size = recipe.image_size
        self.image_shape = (size, size, images.channels)
        self._evaluations = {}
        replicas = self.strategy.num_replicas_in_sync
        if recipe.batch_size % replicas:
            raise ValueError(
                "`batch_size` must be divisible by the number of replicas. "
                f"Received: {recipe.batch_size} for {replicas} replicas."
            )
        if recipe.randaugment_layers and images.channels != 3:
            raise ValueError(
                "`randaugment_layers` must be 0 for gray images: it changes "
                f"colors. Received: {recipe.randaugment_layers}."
            )
        self._per_replica = recipe.batch_size // replicas
        labelled = replicas * self._shares(self._per_replica)[0]
        self.steps_per_epoch = images.train.num_images // labelled
        if not self.steps_per_epoch:
            raise ValueError(
                "`batch_size` must not be larger than the training set. "
                f"Received: {recipe.batch_size} for {images.train.num_images} "
                "images."
            )
        self._crop = evaluation_crop(recipe)
        data.require_readable(images)

    def _add_pseudo_labels(self, images):
        recipe = self.recipe
        source = data.read_pseudo_labels(
            recipe.pseudo_labels,
            images.classes,
            images.channels,
            recipe.shuffle_buffer,
        )
        self.sources["pseudo_labels"] = source
        note = (
            f" {source.num_images:,} pseudo-labelled images of "
            f"{recipe.pseudo_labels}, {recipe.pseudo_label_ratio:g} for each "
            "labelled one."
        )
        return dataclasses.replace(
            images, description=images.description + note
        )

    def _trained_on(self):
        """The labelled images, and the pseudo-labelled ones if any."""
        names = ("train", "pseudo_labels")
        return [self.sources[name] for name in names if name in self.sources]

    def _shares(self, batch_size):
        """How many images of a batch are labelled, and pseudo-labelled."""
        if len(self._trained_on()) == 1:
            return [batch_size]
        ratio = self.recipe.pseudo_label_ratio
        labelled = round(batch_size / (1.0 + ratio))
        if not 0 < labelled < batch_size:
            raise ValueError(
                "`pseudo_label_ratio` must leave both kinds of images in the "
                f"batch of a replica. Received: {ratio} for {batch_size} "
                "images."
            )
        return [labelled, batch_size - labelled]

    def training(
        self, step: int = 0, count_bad: bool = False
    ) -> tf.distribute.DistributedDataset:
        """Returns the endless training batches from a step on.

        Args:
            step: the first one.
            count_bad: whether elements have a third part, see `dataset`.

        Returns:
            A distributed dataset of (images, labels).
        """

        def make(context):
            return self.dataset(_shard(context), None, step, count_bad)

        return self.strategy.distribute_datasets_from_function(make)

    def dataset(
        self,
        shard: data.Shard | None = None,
        batch_size: int | None = None,
        step: int = 0,
        count_bad: bool = False,
    ) -> tf.data.Dataset:
        """Returns the endless training batches of one shard, on no device.

        Args:
            shard: None for all images.
            batch_size: None for the batch of one replica.
            step: the first one.
            count_bad: whether elements have a third part: the number, float32
                `()`, of images that could not be read and were left out
                between the last batch and the end of this one.

        Returns:
            A dataset of (images, labels).
        """
        recipe, shard = self.recipe, shard or data.Shard()
        first = step * self.strategy.num_replicas_in_sync
        shares = self._shares(batch_size or self._per_replica)
        seeds = (recipe.seed, _MAX_SEED - recipe.seed)
        parts = [
            self._augmented(source, share, seed, first * share, shard)
            for source, share, seed in zip(
                self._trained_on(), shares, seeds, strict=False
            )
        ]

        def join_and_mix(number, batches):
            images, labels, positions, bad = zip(*batches, strict=True)
            position = positions[0][0]
            if len(parts) > 1:
                position = first + number * shard.count + shard.index
            seed = data.element_seed(~recipe.seed, position)
            batch = self._mix(tf.concat(images, 0), labels, seed)
            return (*batch, tf.add_n(bad)) if count_bad else batch

        return (
            tf.data.Dataset.zip(tuple(parts))
            .enumerate()
            .map(join_and_mix, num_parallel_calls=data.THREADS)
            .prefetch(tf.data.AUTOTUNE)
        )

    def _augmented(self, source, batch_size, seed, start, shard):
        """Batches of (images, labels, positions, bad), not mixed."""

        def prepare(image, label, position):
            image_seed = data.element_seed(seed, position)
            pixels = self._augment(image, image_seed)
            pixels = tf.ensure_shape(pixels, self.image_shape)
            return tf.cast(pixels, self._crop.dtype), label

        elements = source.stream(seed, start, shard)
        batches = source.batches(
            elements, prepare, batch_size, drop_remainder=True
        )
        return _count_bad(batches, start, shard, batch_size)

    def _augment(self, image, seed):
        """The pixels of a training image, decoded where they are cropped."""
        recipe, size = self.recipe, self.recipe.image_size
        seeds = (
            tf.random.experimental.stateless_fold_in(seed, number)
            for number in itertools.count(1)
        )
        if recipe.augmentation == "random_crop":
            pixels = augment.random_crop(image, seed, size, recipe.min_area)
        else:
            pixels = data.whole_image(image, size)
        if recipe.augmentation == "pad_crop":
            pixels = augment.pad_and_crop(pixels, next(seeds), recipe.padding)
        if recipe.augmentation == "affine":
            pixels = augment.random_affine(
                pixels, next(seeds), recipe.rotation, recipe.shift, recipe.zoom
            )
        if recipe.flip:
            pixels = tf.image.stateless_random_flip_left_right(
                pixels, next(seeds)
            )
        if recipe.randaugment_layers:
            pixels = augment.randaugment(
                pixels, recipe.randaugment_layers, recipe.randaugment_magnitude
            )
        return pixels

    def _mix(self, images, labels, seed):
        """Mixes the images of a batch; labels are those of each source."""
        recipe, classes = self.recipe, len(self.images.classes)
        labels = [augment.probabilities(part, classes) for part in labels]
        labels = tf.concat(labels, 0)
        if recipe.mixup:
            images, labels = augment.mixup(
                images, labels, seed, classes, recipe.mixup
            )
        elif recipe.cutmix:
            images, labels = augment.cutmix(
                images, labels, seed, classes, recipe.cutmix
            )
        return tf.cast(images, self._crop.dtype), labels

    def evaluation(
        self, source: data.Source
    ) -> tf.distribute.DistributedDataset:
        """Returns each image of a source once.

        Elements are (images, labels, weights, bad). The last batches are
        filled up with images of weight 0; `bad`, float32 `()`, is the number
        of images that could not be read and were left out up to this batch,
        so that all weights and all that is bad add up to the images.

        Args:
            source: a part of the image set.

        Returns:
            A distributed dataset, for the replicas of the strategy.
        """
        if source in self._evaluations:
            return self._evaluations[source]
        replicas = self.strategy.num_replicas_in_sync
        size = min(self.recipe.batch_size // replicas, _MAX_EVALUATION_BATCH)

        def make(context):
            count = context.num_input_pipelines
            batches = self._evaluation_shard(source, size, _shard(context))
            shards = [data.Shard(index, count) for index in range(count)]
            largest = max(source.shard_size(shard) for shard in shards)
            per_pipeline = replicas // count
            steps = -(-largest // (size * per_pipeline))
            return batches.take(steps * per_pipeline)

        batches = self.strategy.distribute_datasets_from_function(make)
        self._evaluations[source] = batches
        return batches

    def _evaluation_shard(self, source, size, shard):
        """The batches of a shard, then batches without an image."""
        batches = source.batches(source.scan(shard), self._evaluated, size)
        batches = batches.concatenate(_empty(batches).repeat())

        def fill(images, labels, positions, bad):
            weights = tf.ones_like(positions, tf.float32)
            columns = (_fill(x, size) for x in (images, labels, weights))
            return (*columns, bad)

        return (
            _count_bad(batches, 0, shard, size, source.shard_size(shard))
            .map(fill, num_parallel_calls=data.THREADS)
            .prefetch(tf.data.AUTOTUNE)
        )

    def scan(self, source: data.Source) -> tf.data.Dataset:
        """Returns each image of a source once, as Keras' `evaluate` takes them.

        Elements are (images, labels), on no device; the last batch may be
        smaller. (In those of `evaluation`, which have a static shape, Keras
        would divide the loss by images that are none.)

        The dataset says how many batches there are if all images can be read,
        without which Keras 3 warns after each evaluation. With many bad images
        there are fewer; then it warns.

        Args:
            source: a part of the image set.

        Returns:
            A dataset of pairs.
        """
        size = min(self.recipe.batch_size, _MAX_EVALUATION_BATCH)
        batches = source.batches(source.scan(), self._evaluated, size)
        batches = batches.map(lambda batch, positions: batch)
        # Nothing, for ever: TensorFlow cannot know that, and takes the number.
        nothing = _empty(batches).filter(lambda *batch: False).repeat()
        steps = -(-source.num_images // size)
        return (
            batches.concatenate(nothing).take(steps).prefetch(tf.data.AUTOTUNE)
        )

    def _evaluated(self, image, label, position):
        """The pixels and the one-hot label of an evaluation image."""
        pixels = self._crop(image)
        pixels = tf.ensure_shape(pixels, self.image_shape)
        return pixels, tf.one_hot(label, len(self.images.classes))


def evaluation_crop(recipe: Recipe) -> data.EvaluationCrop:
    """Returns the evaluation preprocessing of a recipe: `image -> pixels`."""
    return data.EvaluationCrop(
        (recipe.image_size, recipe.image_size),
        recipe.evaluation_crop,
        data.image_dtype(recipe.precision),
    )


def _count_bad(batches, start, shard, batch_size, shard_size=None):
    """Counts the images that were left out: their positions are missing.

    Args:
        batches: of `Source.batches`.
        start: of the stream; 0 for a scan.
        shard: of the stream or the scan.
        batch_size: a smaller batch is the last one.
        shard_size: images up to the end of the last batch.

    Returns:
        A dataset of (images, labels, positions, bad).
    """

    def count(expected, batch):
        (images, labels), positions = batch
        size = tf.shape(positions, tf.int64)[0]
        if shard_size is None:
            end = (positions[-1] - start) // shard.count + 1
        else:
            last = tf.reduce_max(positions) // shard.count
            end = tf.where(size < batch_size, np.int64(shard_size), last + 1)
        bad = tf.cast(end - expected - size, tf.float32)
        return end, (images, labels, positions, bad)

    return batches.scan(tf.constant(0, tf.int64), count)


def _empty(batches):
    """A dataset of one batch without an image."""
    empty = tf.nest.map_structure(
        lambda spec: tf.zeros((0, *spec.shape[1:]), spec.dtype),
        batches.element_spec,
    )
    return tf.data.Dataset.from_tensors(empty)


def _fill(column, size):
    """Appends zeros to a column, up to a size."""
    missing = size - tf.shape(column)[0]
    rest = [[0, 0]] * (column.shape.rank - 1)
    filled = tf.pad(column, [[0, missing], *rest])
    return tf.ensure_shape(filled, (size, *column.shape[1:]))


def _shard(context):
    return data.Shard(context.input_pipeline_id, context.num_input_pipelines)
