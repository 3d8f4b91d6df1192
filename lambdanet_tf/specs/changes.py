"""Specs with some attributes changed, and words of other libraries."""

import dataclasses
import difflib

# What networks of other libraries call an argument of ours.
_SYNONYMS = {
    "classes": ("num_classes", "n_classes", "nb_classes", "num_labels"),
    "weights": ("pretrained", "checkpoint_path", "checkpoint", "ckpt"),
    "input_shape": ("img_size", "image_shape", "input_size", "shape")
    + ("in_chans", "in_channels", "channels", "num_channels"),
    "pooling": ("global_pool",),
    "endpoints": ("features_only", "out_indices", "return_endpoints"),
    "classifier_activation": ("activation_fn", "head_activation"),
    "include_preprocessing": ("rescale", "include_rescaling", "normalize"),
    "norm_momentum": ("bn_momentum", "momentum"),
    "norm_epsilon": ("bn_eps", "bn_epsilon", "epsilon"),
    "use_sync_bn": ("sync_bn", "synchronized"),
    "dropout_rate": ("drop_rate", "dropout", "dropout_prob"),
    "drop_path_rate": ("drop_connect_rate", "stochastic_depth_rate"),
    "kernel_regularizer": ("weight_decay", "l2_regularizer"),
    "widths": ("filters", "channels_per_stage"),
    "num_heads": ("heads",),
    "activation": ("act_layer",),
}


def replace(spec, changes, others=()):
    """Returns a spec with some attributes changed.

    Args:
        spec: `ResNetSpec` or `MobileNetSpec`.
        changes: dict from attribute to value.
        others: names that the caller takes besides, for "did you mean".

    Raises:
        ValueError: if the spec has no such attribute, a value is out of range,
            or an attribute changes nothing in the network that results. The
            value that it has is allowed.
    """
    _, *fields = [field.name for field in dataclasses.fields(spec)]  # No name.
    for change in changes:
        if change not in fields:
            raise ValueError(
                f"`{change}` is not an argument of {spec.name}. Received: "
                f"{change}={changes[change]!r}."
                f"{_instead_of(change, (*fields, *others))} Besides those of "
                "every builder (include_top, weights, ...): "
                f"{', '.join(fields)}."
            )
    changed = dataclasses.replace(spec, **changes)
    unused = changed.unused()
    vain = [name for name in changed_fields(spec, changed) if name in unused]
    if vain:
        values = ", ".join(f"{name}={changes[name]!r}" for name in vain)
        raise ValueError(
            f"{' and '.join(f'`{name}`' for name in vain)} would change "
            f"nothing in this {spec.name}, which has no {unused[vain[0]]}. "
            f"Received: {values}. Leave out what changes nothing, or give the "
            "network what reads it."
        )
    return changed


def changed_fields(spec, changed):
    """Names of the attributes in which a spec differs from what it was."""
    names = [field.name for field in dataclasses.fields(spec)]
    return [n for n in names if getattr(spec, n) != getattr(changed, n)]


def _instead_of(name, names):
    """Returns " Did you mean ...?", also for a word of other libraries."""
    meant = {name: name for name in names}
    for argument, synonyms in _SYNONYMS.items():
        if argument in names:
            meant |= dict.fromkeys(synonyms, argument)
    near = difflib.get_close_matches(name, list(meant), n=1, cutoff=0.55)
    return f" Did you mean {meant[near[0]]!r}?" if near else ""
