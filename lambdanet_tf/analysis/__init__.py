"""Counting: parameters, operations and memory of models."""

from lambdanet_tf.analysis.layers import LayerCount
from lambdanet_tf.analysis.model import Analysis
from lambdanet_tf.analysis.model import analyze

__all__ = ["Analysis", "LayerCount", "analyze"]
