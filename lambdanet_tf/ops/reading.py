"""The weights over context positions that the lambdas imply for a query."""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Reading:
    """How much some queries of a lambda layer read from each position.

    Weights can be negative, and need not sum to one.

    Attributes:
        places: the positions of the p queries, each with one index per axis.
        grid: sizes of the queries' grid.
        content: `(batch, p, heads, *context grid, intra_depth)`: weights of
            the content part; zero if there is none.
        position: `(batch, p, heads, *context grid, intra_depth)`: weights of
            the position part; zero if there is none.
        bias: `(batch, p, heads)`: what the position bias adds to every channel
            of a head; zero if there is none.
        values: `(batch, *context grid, value_dim, intra_depth)`: the
            normalized values, to which the weights apply.
    """

    places: tuple[tuple[int, ...], ...]
    grid: tuple[int, ...]
    content: tf.Tensor
    position: tf.Tensor
    bias: tf.Tensor
    values: tf.Tensor

    def outputs(self) -> tf.Tensor:
        """Applies the weights, which gives the layer's outputs at `places`.

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
