"""Weights from elsewhere, and back: `python -m lambdanet_tf.convert --help`."""

from lambdanet_tf.convert.timm import export_to_timm
from lambdanet_tf.convert.timm import import_from_timm
from lambdanet_tf.convert.timm import table

__all__ = ["export_to_timm", "import_from_timm", "table"]
