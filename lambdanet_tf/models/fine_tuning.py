"""Fine-tuning: freeze the lower part of a network, or slow it down.

The parts of a network, from its images on, are those of its layers' names:
"stem", "stage2", "stage3" and so on; what comes after them is the head.
"""

import re
from collections.abc import Callable
from collections.abc import Iterator

import tensorflow as tf

from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import one_of
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.models.cloning import check_model
from lambdanet_tf.models.weight_names import freeze_updated

_PART = re.compile(r"(stem|stage\d+)_")


def freeze(
    model: tf.keras.Model, up_to: str | None, normalization: bool = False
) -> None:
    """Freezes the parts of a network up to one; the others will be trained.

    Frozen layers keep their weights and their statistics: their batch
    normalizations work as in inference. Of layers with low-rank updates (LoRA)
    only these are trained. Compile the model afterwards.

    Args:
        model: a network of `lambdanet_tf.models`, or a model around one.
        up_to: the last part to freeze, such as "stem" or "stage4"; None
            freezes no part.
        normalization: whether every batch normalization is frozen, too, also
            those inside lambda layers, which are not in `model.layers`. Any
            model will do, then, if `up_to` is None.

    Raises:
        ValueError: if the network has no such part.

    Examples:
        >>> model = models.LambdaResNetSmall(classes=3)
        >>> freeze(model, "stage4")
        >>> [weight.shape[-1] for weight in model.trainable_weights]
        [3, 3]
    """
    check_model(model)
    layers = list(_layers(model))
    parts = list(dict.fromkeys(part for _, part in layers if part))
    one_of("up_to", up_to, (None, *parts))
    frozen = parts[: parts.index(up_to) + 1] if up_to is not None else ()
    _set_trainable(model, True)
    for layer, part in layers:
        if part in frozen:
            _set_trainable(layer, False)
    if normalization:
        for layer, _ in layers:
            for inner in layer._flatten_layers():
                if isinstance(inner, tf.keras.layers.BatchNormalization):
                    _set_trainable(inner, False)
    freeze_updated(model)


def _set_trainable(layer, value):
    """Sets a layer and all inside; Keras 3 skips what has the value itself."""
    layer.trainable = not value
    layer.trainable = value


def rates_by_depth(
    optimizer: tf.keras.optimizers.Optimizer,
    model: tf.keras.Model,
    decay: float,
) -> tf.keras.optimizers.Optimizer:
    """Makes an optimizer train the lower parts of a network more slowly.

    The head learns at the optimizer's rate, the last stage at `decay` times
    that rate, the one before it at `decay**2` times, down to the stem. Every
    step of the optimizer, weight decay included, is shortened by that factor,
    which for the optimizers of Keras is a smaller learning rate. The rates
    are not saved with the model.

    Args:
        optimizer: any; it is changed.
        model: a network of `lambdanet_tf.models`, or a model around one,
            which this optimizer will train.
        decay: in [0, 1].

    Returns:
        The optimizer.

    Raises:
        ValueError: if the decay is out of range, the optimizer averages the
            weights itself, or the model has no parts to slow down.

    Examples:
        >>> model = models.LambdaResNetSmall(classes=3)
        >>> optimizer = rates_by_depth(tf.keras.optimizers.SGD(0.1), model, 0.5)
        >>> model.compile(optimizer, "sparse_categorical_crossentropy")
    """
    check_model(model)
    fraction("decay", decay)
    name = "apply" if KERAS_3 else "apply_gradients"
    if not hasattr(optimizer, name):
        raise ValueError(
            "`optimizer` must be an optimizer of `tf.keras`. Received: "
            f"optimizer={optimizer!r}."
        )
    if getattr(optimizer, "use_ema", False):
        raise ValueError(
            "`optimizer` must leave averages of weights to others: they would "
            "be those of full steps. Received: use_ema=True."
        )
    if decay < 1 and not any(part for _, part in _layers(model)):
        raise ValueError(
            "`model` must have layers of parts to slow down, whose names begin "
            f"with 'stem_', 'stage2_' and so on. Received: {model.name!r}."
        )
    setattr(optimizer, name, _shortened(getattr(optimizer, name), model, decay))
    return optimizer


def _shortened(step: Callable, model, decay) -> Callable:
    """A step that moves the weights of a model less, the lower they are."""

    def shortened(*args, **kwargs):
        rated = [(w, rate) for w, rate in _rates(model, decay) if rate < 1]
        variables = [getattr(w, "value", w) if KERAS_3 else w for w, _ in rated]
        before = [tf.identity(variable) for variable in variables]
        result = step(*args, **kwargs)

        def move_back(strategy, before):
            for variable, start, (_, rate) in zip(
                variables, before, rated, strict=True
            ):
                strategy.extended.update(
                    variable,
                    lambda v, start, rate=rate: v.assign(
                        start + tf.cast(rate, v.dtype) * (v - start)
                    ),
                    args=(start,),
                    group=False,
                )

        # The copies of a variable on several devices are updated together.
        if tf.distribute.in_cross_replica_context():
            move_back(tf.distribute.get_strategy(), before)
        else:
            replica = tf.distribute.get_replica_context()
            replica.merge_call(move_back, args=(before,))
        return result

    return shortened


def _rates(model, decay) -> Iterator[tuple]:
    """Every trainable weight, with its rate as a share of the optimizer's."""
    layers = list(_layers(model))
    parts = list(dict.fromkeys(part for _, part in layers if part))
    seen = set()
    for layer, part in layers:
        depth = len(parts) - parts.index(part) if part else 0
        for weight in layer.trainable_weights:
            if id(weight) not in seen:  # Tables may be shared.
                seen.add(id(weight))
                yield weight, decay**depth


def _layers(model) -> Iterator[tuple]:
    """Every layer, also of models inside, and its part; None for the head."""
    for layer in model.layers:
        wraps = isinstance(layer, tf.keras.layers.Wrapper)
        inner = layer.layer if wraps else layer
        if isinstance(inner, tf.keras.Model):
            yield from _layers(inner)
        else:
            match = _PART.match(layer.name)
            yield layer, match[1] if match else None
