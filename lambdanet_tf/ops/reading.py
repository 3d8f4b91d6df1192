"""What a query read: the weights over context positions that lambdas imply."""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Reading:
    """What some queries of a lambda layer read from every context position.

    Weights can be negative, and do not add up to one.

    Attributes:
        places: of the queries, p of them, each one index per axis.
        grid: sizes of the queries' grid.
        content: `(batch, p, heads, *context grid, intra_depth)`: weights of
            the content part; zero without one.
        position: `(batch, p, heads, *context grid, intra_depth)`: weights of
            the position part; zero without one.
        bias: `(batch, p, heads)`: what the position bias adds to every channel
            of a head; zero without one.
        values: `(batch, *context grid, value_dim, intra_depth)`: what the
            weights are applied to, normalized.
    """

    places: tuple[tuple[int, ...], ...]
    grid: tuple[int, ...]
    content: tf.Tensor
    position: tf.Tensor
    bias: tf.Tensor
    values: tf.Tensor

    def outputs(self) -> tf.Tensor:
        """Applies the weights: the layer's outputs at the places.

        Returns:
            `(batch, p, heads * value_dim)`.
        """
        batch, places, heads = self.bias.shape
        value_dim, intra = self.values.shape[-2:]
        values = tf.reshape(self.values, [batch, -1, value_dim, intra])
        weights = tf.reshape(
            self.content + self.position, [batch, places, heads, -1, intra]
        )
        outputs = tf.einsum("bphmu,bmvu->bphv", weights, values)
        outputs += self.bias[..., None]
        return tf.reshape(outputs, [batch, places, heads * value_dim])
