from lambdanet_tf.analysis.layer_flops import LayerCount as LayerCount
from lambdanet_tf.analysis.model_costs import Analysis as Analysis
from lambdanet_tf.analysis.model_costs import analyze as analyze
from lambdanet_tf.analysis.model_costs import (
    trainable_parameters as trainable_parameters,
)
from lambdanet_tf.analysis.parts import PartNorms as PartNorms
from lambdanet_tf.analysis.parts import lambda_layers as lambda_layers
from lambdanet_tf.analysis.parts import part_norms as part_norms
from lambdanet_tf.analysis.parts import receptive_field as receptive_field
from lambdanet_tf.analysis.pictures import (
    position_table_figure as position_table_figure,
)
from lambdanet_tf.analysis.pictures import reading_figure as reading_figure
from lambdanet_tf.analysis.pictures import (
    receptive_field_figure as receptive_field_figure,
)
from lambdanet_tf.analysis.reading import read as read
