"""Two versions of a small export, pictures, and what Keras says to them."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.serving.inference import classifier_of
from tests.serving_run import write_run

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "serving"
NAME = "LambdaResNetSmall"  # as in the example's model.config
SHAPE = (8, 7, 1)


class Served:
    """Exports as the example's `model.config` names them.

    Attributes:
        exported: the folders of versions 1 and 2.
        config: path of that file, with these exports as its `base_path`.
        files: three PNGs of the model's size.
        broken: a JPEG that is none.
        pixels: what is in the files.
        probabilities: what Keras says to them.
        features: likewise.
    """

    def __init__(self, folder):
        run, model = write_run(folder / "20250101-000000")
        self.exported = [serving.export_run(run, folder) for _ in range(2)]
        text = (EXAMPLE / "model.config").read_text()
        self.config = folder / "model.config"
        self.config.write_text(
            text.replace(f"/models/{NAME}", str(folder / NAME))
        )
        rng = np.random.default_rng(0)
        pixels = rng.integers(0, 256, (3, *SHAPE), np.uint8)
        self.pixels = pixels.astype(np.float32)
        self.files = [folder / f"{index}.png" for index in range(3)]
        for file, image in zip(self.files, pixels, strict=True):
            file.write_bytes(tf.io.encode_png(image).numpy())
        self.broken = folder / "broken.jpg"
        self.broken.write_bytes(self.files[0].read_bytes()[:50])
        head = classifier_of(model)
        network = tf.keras.Model(model.inputs, head.input)
        self.features = network.predict(self.pixels, verbose=0)
        kernel, bias = head.get_weights()
        self.probabilities = tf.nn.softmax(
            self.features @ kernel + bias
        ).numpy()


def start_server(config):
    """Starts the stand-in; returns its process, and its ports."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stand_in_server"]
        + ["--model_config_file", str(config)]
        + ["--port", "0", "--rest_api_port", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    grpc, rest = re.findall(r"port (\d+)", process.stdout.readline())
    return process, {"grpc": grpc, "rest": rest}
