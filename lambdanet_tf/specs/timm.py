"""The networks of PyTorch Image Models (timm), for which there are weights.

Source: timm/models/byoanet.py of timm 1.0.31, `lambda_resnet26t`,
`lambda_resnet50ts` and `lambda_resnet26rpt_256`.
"""

import dataclasses

from lambdanet_tf.specs.resnet import ResNetSpec

LAMBDA_RESNET_26T = ResNetSpec(
    name="LambdaResNet26T",
    stages=("CC", "CC", "CL", "LL"),
    image_size=256,
    stem_filters=(24, 32, 64),
    stem_strides=(2, 1, 1),
    stem_kernel_size=3,
    lambda_pool=2,
    norm_epsilon=1e-5,
    padding="symmetric",
    scope=9,
    use_position_bias=True,
)
LAMBDA_RESNET_50TS = dataclasses.replace(
    LAMBDA_RESNET_26T,
    name="LambdaResNet50TS",
    stages=("CCC", "CCCL", "CLCLCL", "CLC"),
    activation="silu",
)
LAMBDA_RESNET_26RPT_256 = dataclasses.replace(
    LAMBDA_RESNET_26T,
    name="LambdaResNet26RPT256",
    scope=None,
    use_position_bias=False,
)
