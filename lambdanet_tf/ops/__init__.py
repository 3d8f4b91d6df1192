"""The equations of lambda layers, as pure functions on tensors.

The einsum equations use the letters of the paper:

    b  batch                    k  query and key depth (`key_dim`)
    n  query positions          v  value depth (`value_dim`)
    m  context positions        h  queries per position (`num_heads`)
    r  entries of the scope     u  intra-depth (`intra_depth`)

Positions of 1-D, 2-D and 3-D grids are flattened row-major into n or m.
"""

from lambdanet_tf.ops.attention import relative_attention
from lambdanet_tf.ops.devices import DEVICES
from lambdanet_tf.ops.devices import accumulation_dtype
from lambdanet_tf.ops.devices import planning_for
from lambdanet_tf.ops.geometry import Geometry
from lambdanet_tf.ops.geometry import causal_axis
from lambdanet_tf.ops.geometry import same_axis
from lambdanet_tf.ops.geometry import size
from lambdanet_tf.ops.geometry import valid_axis
from lambdanet_tf.ops.keys import KEY_NORMALIZATIONS
from lambdanet_tf.ops.lambdas import lambda_output
from lambdanet_tf.ops.masks import Masks
from lambdanet_tf.ops.masks import check_attention_mask
from lambdanet_tf.ops.masks import padding_mask
from lambdanet_tf.ops.pairs import pair_embeddings
from lambdanet_tf.ops.pairs import relative_index
from lambdanet_tf.ops.position.costs import Dims
from lambdanet_tf.ops.position.plan import ALGORITHMS
from lambdanet_tf.ops.position.plan import TYPICAL_BATCH
from lambdanet_tf.ops.position.plan import Plan
from lambdanet_tf.ops.position.plan import implementations
from lambdanet_tf.ops.position.plan import plan_for
from lambdanet_tf.ops.reading import Reading
from lambdanet_tf.ops.state import content_state_spec
from lambdanet_tf.ops.state import initial_state

__all__ = [
    "ALGORITHMS",
    "DEVICES",
    "KEY_NORMALIZATIONS",
    "Dims",
    "Geometry",
    "Masks",
    "Plan",
    "TYPICAL_BATCH",
    "Reading",
    "accumulation_dtype",
    "causal_axis",
    "check_attention_mask",
    "content_state_spec",
    "implementations",
    "initial_state",
    "lambda_output",
    "padding_mask",
    "pair_embeddings",
    "plan_for",
    "planning_for",
    "relative_attention",
    "relative_index",
    "same_axis",
    "size",
    "valid_axis",
]
