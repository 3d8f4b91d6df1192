"""The weights of Fashion-MNIST, which this package has trained.

They are a file of the release, beside the wheel. A clone has it.
"""

import os

import numpy as np

from lambdanet_tf import specs
from lambdanet_tf.files import sha256_of
from lambdanet_tf.models.timm.hub import cache_folder
from lambdanet_tf.models.weights import read_weights

FASHION_MNIST = "fashion_mnist"
_NETWORK = "LambdaResNetSmall28"
_FILE = "fashion_mnist.npz"
_SHA256 = "0368c69cfcc4d2030994ed62312accb5a272d012282fd760ce549121aad031c1"
_CLONE = os.path.join(os.path.dirname(__file__), "../../results")
# What may be another: it decides nothing but how a network is trained.
_TRAINING_ALONE = {"dropout_rate", "drop_path_rate", "drop_path_schedule"}


def read_fashion_mnist(
    spec: specs.ResNetSpec | specs.MobileNetSpec,
) -> tuple[dict[str, np.ndarray], str]:
    """Reads the weights that the recipe `fashion_mnist` trained.

    Args:
        spec: of the network that they are for.

    Returns:
        Arrays by our names, and where they are from, for messages.

    Raises:
        ValueError: if the network is another, the file is not there, or it is
            a damaged one.
    """
    changed = ()
    if spec.name == _NETWORK:
        changed = specs.changed_fields(specs.RESNETS[_NETWORK], spec)
        changed = [name for name in changed if name not in _TRAINING_ALONE]
    if spec.name != _NETWORK or changed:
        but = f", with other {', '.join(changed)}" if changed else ""
        raise ValueError(
            f"`weights={FASHION_MNIST!r}` are those of {_NETWORK} as it is. "
            f"Received: {spec.name}{but}."
        )
    folders = os.path.normpath(_CLONE), cache_folder()
    paths = [os.path.join(folder, _FILE) for folder in folders]
    for path in filter(os.path.exists, paths):
        if (found := sha256_of(path)) != _SHA256:
            raise ValueError(
                f"{path} is not the file of this release: its SHA-256 must be "
                f"{_SHA256}. Received: {found}."
            )
        return read_weights(path)
    raise ValueError(
        f"`weights={FASHION_MNIST!r}` needs {_FILE}, a file of the release: "
        f"put it into {folders[1]}. A clone has it in results."
    )
