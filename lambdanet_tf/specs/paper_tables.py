"""Tables 19 and 20 of the paper, as printed.

Source: I. Bello, "LambdaNetworks: Modeling Long-Range Interactions Without
Attention", arXiv:2102.08602.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class DepthRow:
    """A row of Table 19.

    Attributes:
        blocks: numbers of residual blocks in the stages c2, c3, c4 and c5.
        lambda_blocks_c4: the lambda blocks of c4 in a LambdaResNet, numbered
            from 1; all blocks of c5 are lambda blocks.
    """

    depth: int
    blocks: tuple[int, int, int, int]
    lambda_blocks_c4: tuple[int, ...]


TABLE_19 = (
    DepthRow(50, (3, 4, 6, 3), (3,)),
    DepthRow(101, (3, 4, 23, 3), (6, 12, 18)),
    DepthRow(152, (3, 8, 36, 3), (5, 10, 15, 20, 25, 30)),
    DepthRow(200, (3, 24, 36, 3), (5, 10, 15, 20, 25, 30)),
    DepthRow(270, (4, 29, 53, 4), (8, 16, 24, 32, 40, 48)),
    DepthRow(350, (4, 36, 72, 4), (10, 20, 30, 40, 50, 60)),
    DepthRow(420, (4, 44, 87, 4), (10, 20, 30, 40, 50, 60, 70, 80)),
)


@dataclasses.dataclass(frozen=True)
class TrainingRow:
    """A row of Table 20: a LambdaResNet trained for 350 epochs.

    Attributes:
        step_seconds: for 1024 images on 8 TPUv3 cores in bfloat16.
        top1: ImageNet accuracy in percent; 0 if the paper gives none.
        top1_pseudo_labels: `top1` with pseudo-labeled images.
    """

    depth: int
    image_size: int
    randaugment_magnitude: int
    dropout_rate: float
    drop_path_rate: float
    step_seconds: float
    top1: float
    top1_pseudo_labels: float


TABLE_20 = (
    TrainingRow(50, 128, 10, 0.2, 0.0, 0.058, 77.4, 82.1),
    TrainingRow(50, 160, 10, 0.2, 0.0, 0.089, 79.2, 83.4),
    TrainingRow(101, 160, 10, 0.3, 0.0, 0.14, 80.8, 84.7),
    TrainingRow(101, 192, 15, 0.2, 0.0, 0.20, 81.9, 85.4),
    TrainingRow(152, 192, 15, 0.3, 0.0, 0.28, 82.5, 86.1),
    TrainingRow(152, 224, 15, 0.3, 0.1, 0.38, 83.2, 86.5),
    TrainingRow(152, 256, 15, 0.3, 0.1, 0.49, 83.8, 0.0),
    TrainingRow(152, 288, 15, 0.3, 0.1, 0.63, 0.0, 86.7),
    TrainingRow(270, 256, 15, 0.3, 0.1, 0.91, 84.2, 0.0),
    TrainingRow(350, 256, 15, 0.3, 0.2, 1.16, 84.4, 0.0),
    TrainingRow(350, 288, 15, 0.3, 0.2, 1.48, 84.5, 0.0),
    TrainingRow(350, 320, 15, 0.3, 0.2, 1.91, 84.7, 0.0),
    TrainingRow(420, 320, 15, 0.3, 0.2, 2.25, 84.9, 0.0),
)
