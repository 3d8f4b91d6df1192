"""Lambda networks in the TensorFlow Model Garden (extra `garden`).

If you import this package, it registers the backbones `lambda_resnet` and
`lambda_mobilenet`, and the experiments of `lambdanet_tf.garden.experiments`.
"""

import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import require

# If one of these checks fails, the imports below would fail or mix Kerases.
require("official.vision", "garden")
if not tf.__version__.startswith("2.20."):
    raise ImportError(
        "lambdanet_tf.garden needs TensorFlow 2.20, as the Model Garden does. "
        f"Received: {tf.__version__}. Install the extra `garden`: "
        'pip install "lambdanet-tf[garden]".'
    )
if KERAS_3:
    raise ImportError(
        "lambdanet_tf.garden needs tf_keras, because the Model Garden uses it. "
        "Set the environment variable TF_USE_LEGACY_KERAS=1 before you import "
        "TensorFlow."
    )

from lambdanet_tf.garden.backbones import Backbone as Backbone  # noqa: E402
from lambdanet_tf.garden.backbones import LambdaMobileNet as LambdaMobileNet  # noqa: E402
from lambdanet_tf.garden.backbones import LambdaResNet as LambdaResNet  # noqa: E402
from lambdanet_tf.garden.backbones import NetworkBackbone as NetworkBackbone  # noqa: E402
from lambdanet_tf.garden.experiments import EXPERIMENTS as EXPERIMENTS  # noqa: E402
