"""One builder for every residual network: a row of the table to a graph."""

from lambdanet_tf import specs
from lambdanet_tf.arguments import boolean
from lambdanet_tf.arguments import checked_arguments
from lambdanet_tf.models import blocks
from lambdanet_tf.models.head import finish
from lambdanet_tf.models.images import image_input
from lambdanet_tf.models.images import preprocessing


@checked_arguments
def ResNet(
    spec,
    include_top=True,
    weights=None,
    input_tensor=None,
    input_shape=None,
    pooling=None,
    classes=1000,
    classifier_activation="softmax",
    name=None,
    include_preprocessing=True,
    endpoints=None,
    implementation="auto",
    kernel_initializer="he_normal",
    kernel_regularizer=None,
    norm_momentum=0.9,
    use_sync_bn=False,
    **changes,
):
    """Builds a residual network of convolution, lambda and attention blocks.

    The rows of `lambdanet_tf.specs.RESNETS` are the published networks; the
    functions named after them call this one. Any attribute of the row can be
    changed by keyword, for instance
    `LambdaResNet50(scope=7, key_dim=8, dropout_rate=0.1)`, and the same
    attributes make a network of your own: `ResNet(ResNetSpec(name="mine",
    stages=("CC", "CL"), widths=(32, 64), strides=(1, 2)))`.

    Args:
        spec: `ResNetSpec`, the network.
        include_top: bool. Whether to end in a classifier.
        weights: None; "imagenet" for published weights, of the networks that
            have them, fetched once into Keras' cache; or a path: of an `.npz`
            file or a run folder as `load_weights` takes it, or of a
            `.safetensors` file of timm. ImageNet's classifier is left out
            where `classes` is not 1000. Other image sizes: see `load_initial`
            in `lambdanet_tf.models.pretrained`.
        input_tensor: None, or a Keras tensor of images to build on.
        input_shape: (height, width, channels); None for the recommended size
            and 3 channels. With a local `scope` and no letters A, X and P,
            height and width can be None and the network takes images of any
            size; otherwise it takes those it was built for.
        pooling: without a classifier, None for the last map, `"avg"` or
            `"max"` for its mean or maximum over positions.
        classes: int. Number of classes.
        classifier_activation: str, callable or None. None returns logits.
            Always float32, also under mixed precision.
        name: of the model; None for the row's.
        include_preprocessing: whether the model normalizes images in [0, 255]
            itself. If not, it takes what `preprocess_input` returns with the
            same argument.
        endpoints: None, or names among `"c2"` to `"c5"` (strides 4 to 32 in
            the published networks). The model then returns a dictionary of
            these feature maps, for a detector, and neither head nor pooling.
        implementation: algorithm of the lambda layers.
        kernel_initializer: of the convolutions.
        kernel_regularizer: of every kernel, and of nothing else.
        norm_momentum: of every batch normalization, also of those in the
            lambda layers. With 0.99 or more inference agrees with training
            only after hundreds of steps.
        use_sync_bn: whether replicas share the statistics of a batch.
        **changes: attributes of `spec` to change, by keyword.

    Returns:
        A `tf.keras.Model`: images in [0, 255], `(batch, height, width,
        channels)` -> probabilities `(batch, classes)`, or what `include_top`,
        `pooling` and `endpoints` say.

    Raises:
        ValueError: if an argument is unknown or out of range, the images are
            smaller than the total stride, or the weights do not fit.
        OSError: if published weights cannot be fetched.
    """
    specs.check_kind(spec, specs.ResNetSpec)
    boolean("include_preprocessing", include_preprocessing)
    spec = specs.changed(spec, changes)
    options = blocks.LayerOptions(
        activation=spec.activation,
        padding=spec.padding,
        kernel_initializer=kernel_initializer,
        kernel_regularizer=kernel_regularizer,
        norm_momentum=norm_momentum,
        norm_epsilon=spec.norm_epsilon,
        use_sync_bn=use_sync_bn,
        implementation=implementation,
    )
    inputs, images = image_input(
        input_tensor, input_shape, spec.image_size, spec.stride
    )
    given = [name for name in ("image_mean", "image_std") if name in changes]
    if given and not (include_preprocessing and images.shape[-1] == 3):
        raise ValueError(
            f"`{given[0]}` is of color images, which the network normalizes. "
            f"Received: images of shape {tuple(images.shape)}, "
            f"include_preprocessing={include_preprocessing}."
        )
    x = images
    if include_preprocessing:
        x = preprocessing(images, spec.image_mean, spec.image_std)
    maps = feature_maps(x, spec, options)
    return finish(
        inputs,
        images,
        maps,
        maps[f"c{len(spec.stages) + 1}"],
        name or spec.name,
        spec,
        include_top=include_top,
        weights=weights,
        pooling=pooling,
        classes=classes,
        classifier_activation=classifier_activation,
        endpoints=endpoints,
        kernel_regularizer=kernel_regularizer,
    )


def feature_maps(x, spec, options):
    """The last map of each stage, by name, from preprocessed images."""
    x = blocks.stem(x, spec, options)
    rates = iter(drop_rates(spec))
    maps = {}
    rows = zip(spec.stages, spec.widths, spec.strides, strict=True)
    for stage, (letters, width, strides) in enumerate(rows, start=2):
        shared = "relative"
        if spec.share_embeddings and spec.use_position:
            shared = blocks.position_embedding(spec, stage)
        for block, letter in enumerate(letters, start=1):
            stride = strides if block == 1 else 1
            x = blocks.bottleneck(
                x,
                letter,
                width,
                spec,
                options,
                name=f"stage{stage}_block{block}",
                strides=stride,
                use_se=spec.se_ratio > 0 and stage in spec.se_stages,
                drop_rate=next(rates),
                # The lambda layer of a block that strides sees a larger map.
                embedding=shared if stride == 1 else "relative",
            )
        maps[f"c{stage}"] = x
    return maps


def drop_rates(spec):
    """The drop-path rate of every block, in order."""
    numbers = [len(letters) for letters in spec.stages]
    total = sum(numbers)
    if spec.drop_path_schedule == "constant":
        shares = [1.0] * total
    elif spec.drop_path_schedule == "block":
        shares = [i / max(1, total - 1) for i in range(total)]
    else:
        shares = [
            stage / (len(numbers) + 1)
            for stage, blocks_of_stage in enumerate(numbers, start=2)
            for _ in range(blocks_of_stage)
        ]
    return [spec.drop_path_rate * share for share in shares]
