"""The published weights of timm's networks, downloaded once."""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from lambdanet_tf.files import FileError
from lambdanet_tf.models.timm.safetensors import library
from lambdanet_tf.models.timm.safetensors import read_safetensors


@dataclasses.dataclass(frozen=True)
class Published:
    """Where the weights of a network are published."""

    timm_name: str
    address: str  # of the `.safetensors` file, with its revision
    sha256: str | None = None  # of the file, in hexadecimal, if known


def _on_hub(timm_name, revision="main", sha256=None):
    hub = "https://huggingface.co/timm"
    address = f"{hub}/{timm_name}/resolve/{revision}/model.safetensors"
    return Published(timm_name, address, sha256)


# By R. Wightman, under the Apache License 2.0. Add the hashes once they have
# been read from the hub.
PUBLISHED = {
    "LambdaResNet26T": _on_hub("lambda_resnet26t.c1_in1k"),
    "LambdaResNet50TS": _on_hub(
        "lambda_resnet50ts.a1h_in1k",
        revision="d1104e080d2725a19db5ec2ec58f589c490d674b",
    ),
    "LambdaResNet26RPT256": _on_hub("lambda_resnet26rpt_256.c1_in1k"),
}


def read_published(name: str) -> tuple[dict[str, np.ndarray], str]:
    """Reads the weights of a network of `PUBLISHED` from Keras' cache."""
    library()  # Before we download anything.
    published = PUBLISHED[name]
    path = None
    try:
        path = tf.keras.utils.get_file(
            f"{published.timm_name}.safetensors",
            published.address,
            cache_subdir="models",
            cache_dir=os.environ.get("KERAS_HOME"),
            file_hash=published.sha256,
        )
        return read_safetensors(path), path
    except Exception as error:  # Keras raises no narrower class.
        if path is not None:  # The next call downloads the file again.
            os.remove(path)
        reason = " ".join(str(error).split())
        raise FileError(
            f"The weights of {name} could not be downloaded ({reason}). "
            f"Download {published.address} by other means, and pass the path "
            "of the file, for example `weights='model.safetensors'`."
        ) from None
