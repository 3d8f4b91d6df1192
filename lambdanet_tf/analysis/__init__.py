"""Counting what models cost, and seeing what their layers learned."""

from lambdanet_tf.analysis.layer_flops import LayerCount
from lambdanet_tf.analysis.model_costs import Analysis
from lambdanet_tf.analysis.model_costs import analyze
from lambdanet_tf.analysis.model_costs import trainable_parameters
from lambdanet_tf.analysis.parts import PartNorms
from lambdanet_tf.analysis.parts import lambda_layers
from lambdanet_tf.analysis.parts import part_norms
from lambdanet_tf.analysis.parts import receptive_field
from lambdanet_tf.analysis.pictures import position_table_figure
from lambdanet_tf.analysis.pictures import reading_figure
from lambdanet_tf.analysis.pictures import receptive_field_figure
from lambdanet_tf.analysis.reading import read

__all__ = [
    "Analysis",
    "LayerCount",
    "PartNorms",
    "analyze",
    "lambda_layers",
    "part_norms",
    "position_table_figure",
    "read",
    "reading_figure",
    "receptive_field",
    "receptive_field_figure",
    "trainable_parameters",
]
