"""Lambda networks in KerasHub's detectors and segmenters (extra `keras_hub`).

Importing this package registers the backbone, so that Keras can load the
detectors and segmenters that have one.
"""

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import require

# Before KerasHub is imported, which would mix two Kerases.
if not KERAS_3:
    raise ImportError(
        "lambdanet_tf.keras_hub needs `tf.keras` to be Keras 3, which KerasHub "
        "is made of. Unset the environment variable TF_USE_LEGACY_KERAS before "
        "TensorFlow is imported. For tf_keras there is `lambdanet_tf.garden`."
    )
require("keras_hub", "keras_hub")

from lambdanet_tf.keras_hub.backbone import NetworkBackbone  # noqa: E402

__all__ = ["NetworkBackbone"]
