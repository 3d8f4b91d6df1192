"""Lambda networks in the TensorFlow Model Garden (extra `garden`).

Importing this package registers the backbones `lambda_resnet` and
`lambda_mobilenet` and the experiments of `lambdanet_tf.garden.experiments`.
"""

import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import require

# What is imported below fails, or mixes two Kerases, where these raise.
require("official.vision", "garden")
if not tf.__version__.startswith("2.20."):
    raise ImportError(
        "lambdanet_tf.garden needs TensorFlow 2.20, for which its Model Garden "
        f"is made. Received: {tf.__version__}. The extra `garden` installs it: "
        'pip install "lambdanet-tf[garden]".'
    )
if KERAS_3:
    raise ImportError(
        "lambdanet_tf.garden needs `tf.keras` to be tf_keras, which the Model "
        "Garden is made of. Set the environment variable TF_USE_LEGACY_KERAS=1 "
        "before TensorFlow is imported."
    )

from lambdanet_tf.garden.backbones import Backbone as Backbone  # noqa: E402
from lambdanet_tf.garden.backbones import LambdaMobileNet as LambdaMobileNet  # noqa: E402
from lambdanet_tf.garden.backbones import LambdaResNet as LambdaResNet  # noqa: E402
from lambdanet_tf.garden.backbones import NetworkBackbone as NetworkBackbone  # noqa: E402
from lambdanet_tf.garden.experiments import EXPERIMENTS as EXPERIMENTS  # noqa: E402
