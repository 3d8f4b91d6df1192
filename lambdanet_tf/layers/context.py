"""Layers whose keys and values may come from a second input."""

from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import boolean
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import scope_per_axis
from lambdanet_tf.layers.argument import argument
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.grids import as_floating
from lambdanet_tf.layers.grids import check_as_built
from lambdanet_tf.layers.grids import check_grid
from lambdanet_tf.layers.grids import known_shape
from lambdanet_tf.layers.grids import with_shape


class ContextLayer(BaseLayer):
    """A layer called on `inputs` and, optionally, a `context` of its own.

    Subclasses create their weights in `_build`, and say in `_has_geometry`
    whether what a query sees depends on where it is, in `axis` which axis of a
    grid alone sees itself, and what errors advise.
    """

    filters: int | None = argument(
        default=None, check=positive_int, kw_only=False
    )
    scope: Any = argument(default=None, check=scope_per_axis)
    causal: bool = argument(default=False, check=boolean)

    _several = (
        "Keys and values are made of the context: layer(query, context=value)."
    )
    _context_shape = None
    axis = None

    def _call_arguments(self, args, kwargs):
        arguments = super()._call_arguments(args, kwargs)
        if arguments and arguments.get("context") is arguments.get("inputs"):
            del arguments["context"]  # A cast would make two tensors of it.
        return arguments

    def _prepare(self, inputs, arguments):
        context = arguments.get("context")
        if not self.built:
            # Keras 2 tells `build` the shape of the first argument only.
            self._context_shape = None if context is None else context.shape
        if self._has_geometry and _by_query(arguments.get("attention_mask")):
            # Keras 3 does not run `call` on symbolic tensors.
            built = self._build_shapes[0] if self.built else inputs.shape
            grid = tuple(known_shape(inputs.shape, built)[1:-1])
            if None in self._attended(grid):
                raise ValueError(
                    "`attention_mask` needs inputs of static spatial sizes in "
                    f"a layer with {self._geometry_of}. Received: {grid}. Fix "
                    "the sizes, or use `context_mask` for padding and `causal` "
                    "for sequences."
                )

    def _check_symbolic(self, inputs, context=None, **arguments):
        context = inputs if context is None else context
        pair = inputs, context
        if self.built:
            for x, built in zip(pair, self._build_shapes, strict=True):
                check_as_built(self.name, x.shape, built)
            self._check_shapes(*(tuple(x.shape) for x in pair))
            if self._has_geometry:
                grid = [size or 1 for size in context.shape[1:-1]]
                self._geometry(self._attended(grid))
        given = {"inputs": inputs, "context": context}
        for name in ("mask", "context_mask", "attention_mask"):
            given[name] = arguments.get(name)
        with tf.Graph().as_default():
            for name, x in given.items():
                if tf.keras.backend.is_keras_tensor(x):
                    given[name] = tf.compat.v1.placeholder(x.dtype, x.shape)
            if context is inputs:
                given["context"] = given["inputs"]
            ops.Masks.of_call(
                **given,
                num_heads=self.num_heads,
                causal=self.causal,
                axis=self.axis,
            )

    # Keras 3 compares named arguments with those of `call`; `input_shape` is
    # what other layers call the first.
    def build(self, inputs_shape=None, context_shape=None, **kwargs):
        if inputs_shape is None:
            inputs_shape = kwargs.pop("input_shape", None)
        if inputs_shape is None or kwargs:
            raise ValueError(
                "`build` must be given `inputs_shape`, and can be given "
                f"`context_shape`. Received: inputs_shape={inputs_shape}"
                f"{''.join(f', {name}=...' for name in kwargs)}."
            )
        inputs_shape = tuple(inputs_shape)
        called_with, self._context_shape = self._context_shape, None
        context_shape = tuple(context_shape or called_with or inputs_shape)
        self._check_shapes(inputs_shape, context_shape)
        self._build_shapes = [inputs_shape, context_shape]
        self._build(inputs_shape, context_shape)
        super().build(inputs_shape)

    def get_build_config(self):
        return {"shapes": self._build_shapes} if self.built else None

    def build_from_config(self, config):
        if config is not None:
            self.build(*config["shapes"])

    def compute_output_shape(self, inputs_shape):
        return (*inputs_shape[:-1], self.filters or inputs_shape[-1])

    def _attended(self, grid):
        """The sizes of the axes along which positions see each other."""
        grid = tuple(grid)
        return grid if self.axis is None else grid[self.axis - 1 : self.axis]

    @property
    def _needs_one_grid(self):
        """Whether the context must lie on the grid of the inputs."""
        return self._has_geometry or self.causal or self.axis is not None

    def _inputs_and_masks(
        self, inputs, context, mask, context_mask, attention_mask
    ):
        """Inputs, context and masks, with the static sizes known from build.

        Those of the grid only where they must be static: others can change.
        """
        with_grid = self._has_geometry and (
            self.scope is None or _by_query(attention_mask)
        )
        inputs = self._as_built(inputs, 0, with_grid)
        if context is None:
            context = inputs
        else:
            context = self._as_built(
                tf.convert_to_tensor(context), 1, with_grid
            )
            if self._needs_one_grid:
                inputs = _with_grid_of(inputs, context)
                context = _with_grid_of(context, inputs)
        self._check_shapes(tuple(inputs.shape), tuple(context.shape))
        masks = ops.Masks.of_call(
            inputs,
            context,
            mask,
            context_mask,
            attention_mask,
            self.num_heads,
            self.causal,
            self.axis,
        )
        return inputs, context, masks

    def _as_built(self, x, argument, with_grid):
        batch, *grid, channels = self._build_shapes[argument]
        if not with_grid:
            grid = [None] * len(grid)
        x = as_floating(x, self.compute_dtype)
        return with_shape(x, [None, *grid, channels])

    def _check_shapes(self, inputs_shape, context_shape):
        check_grid("inputs", inputs_shape)
        check_grid("context", context_shape)
        attended = self._attended(inputs_shape[1:-1])
        if not attended:
            raise ValueError(
                "`axis` must be a spatial axis of the inputs, counted from 1. "
                f"Received: axis={self.axis}, inputs of shape {inputs_shape}."
            )
        if self.causal and len(attended) != 1:
            raise ValueError(
                f"`causal=True` needs {self._line_of}. Received: inputs of "
                f"shape {inputs_shape}."
            )
        grids = inputs_shape[1:-1], context_shape[1:-1]
        same = tf.TensorShape(grids[0]).is_compatible_with(grids[1])
        if self._needs_one_grid and not same:
            who, remedy = self._one_grid_of
            raise ValueError(
                f"{who} need a `context` on the grid of the `inputs`. "
                f"Received: {grids[0]} and {grids[1]}. {remedy}"
            )
        batches = inputs_shape[0], context_shape[0]
        if None not in batches and batches[0] != batches[1]:
            raise ValueError(
                "`inputs` and `context` must have the same batch size. "
                f"Received: {batches[0]} and {batches[1]}."
            )


def scope_of_grid(grid, entries, causal):
    """The `Geometry` of a table, or of a scope, that lies over a grid.

    Args:
        grid: sizes, int or scalar tensors.
        entries: of the table, on each axis.
        causal: bool.
    """
    if causal:
        # A table keeps its center; what lies behind it is never used.
        past = entries[0] // 2 + 1
        return ops.Geometry.of([ops.causal_axis(grid[0], past)])
    return ops.Geometry.of(map(ops.same_axis, grid, entries))


def _by_query(attention_mask):
    """Whether there is a mask that differs from query to query."""
    return attention_mask is not None and not ops.is_shared(
        attention_mask.shape
    )


def _with_grid_of(x, other):
    """A tensor on the grid of another, with the sizes that are known of it."""
    return with_shape(x, [None, *other.shape[1:-1], None])
