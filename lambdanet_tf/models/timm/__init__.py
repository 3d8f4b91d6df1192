"""timm's lambda networks: their published weights and weight layout."""

from lambdanet_tf.models.timm.hub import PUBLISHED

__all__ = ["PUBLISHED"]
