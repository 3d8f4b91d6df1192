"""Lambda networks in KerasHub's detectors and segmenters (extra `keras_hub`).

If you import this package, it registers the backbone with Keras, which can then
load detectors and segmenters that use it.
"""

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import require

# Before we import KerasHub, which would mix the two Kerases.
if not KERAS_3:
    raise ImportError(
        "lambdanet_tf.keras_hub needs Keras 3, because KerasHub uses it. Unset "
        "the environment variable TF_USE_LEGACY_KERAS before you import "
        "TensorFlow. With tf_keras, use `lambdanet_tf.garden`."
    )
require("keras_hub", "keras_hub")

from lambdanet_tf.keras_hub.backbone import NetworkBackbone  # noqa: E402

__all__ = ["NetworkBackbone"]
