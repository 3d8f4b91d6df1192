"""Which networks timm's `ByobNet` can express, and what it has not."""

from lambdanet_tf import specs


def check_expressible(spec: specs.ResNetSpec) -> None:
    """Raises a ValueError unless timm can build the network of a spec."""
    if not isinstance(spec, specs.ResNetSpec):
        reasons = ["it is no network of residual blocks"]
    else:
        reasons = list(_differences(spec))
    if reasons:
        raise ValueError(
            f"timm cannot express {spec.name}: {'; '.join(reasons)}."
        )


def _differences(spec):
    """Yields what a spec has and timm's `ByobNet` has not."""
    window, count = spec.stem_kernel_size, len(spec.stem_filters)
    strides = (2, *[1] * (count - 1))
    if count > 1 and not spec.stem_pool:
        strides = (*strides[:-1], 2)
    letters = set("".join(spec.stages))
    for differs, reason in (
        (letters - {"C", "L"}, "attention"),
        (spec.has_se, "squeeze-and-excitation"),
        (spec.padding != "symmetric", "padding other than 'symmetric'"),
        (spec.norm_epsilon != 1e-5, "a norm_epsilon other than 1e-5"),
        (spec.stem_strides != strides, f"stem_strides other than {strides}"),
        (
            window != 3 and (window, count) != (7, 1),
            "a stem of other convolutions than 3x3, or one 7x7",
        ),
        (
            any(width % 8 for width in spec.widths),
            "widths that are no multiples of 8",
        ),
        # Its convolutions pad by more than half their window there.
        (max(spec.strides) > 2, "strides above 2"),
    ):
        if differs:
            yield reason
    if "L" in letters:
        yield from _lambda_differences(spec)


def _lambda_differences(spec):
    """Yields what the lambda layers of a spec have and timm's have not."""
    scope = spec.scope
    if isinstance(scope, int):
        scope = (scope, scope)
    pools = "lambda_pool" not in spec.unused()
    for differs, reason in (
        (spec.share_embeddings, "shared embeddings"),
        (spec.intra_depth != 1, "an intra_depth above 1"),
        (not spec.use_content, "lambda layers without content"),
        (not spec.use_position, "lambda layers without position"),
        (spec.key_normalization != "softmax", "key_normalization"),
        (spec.query_normalization is not None, "query_normalization"),
        (not spec.use_batch_norm, "lambda layers without normalization"),
        (scope is None and spec.use_position_bias, "a bias of a global scope"),
        (scope is not None and scope[0] != scope[-1], "a scope not square"),
        (pools and spec.lambda_pool != 2, "lambda_pool other than 2"),
    ):
        if differs:
            yield reason
