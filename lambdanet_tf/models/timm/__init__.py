"""timm's lambda networks: their layout, published weights, and conversion."""

from lambdanet_tf.models.timm.conversion import export_to_timm
from lambdanet_tf.models.timm.conversion import import_from_timm
from lambdanet_tf.models.timm.conversion import table
from lambdanet_tf.models.timm.hub import PUBLISHED

__all__ = ["PUBLISHED", "export_to_timm", "import_from_timm", "table"]
