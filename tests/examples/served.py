"""A server of two versions of a small export, images, outputs of Keras."""

import contextlib
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import tensorflow as tf

from examples.serving.grpc_client import GrpcClient
from examples.serving.rest_client import RestClient
from tests.support.serving_run import SHAPE

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "serving"
CLIENTS = {"grpc": GrpcClient, "rest": RestClient}
NAME = "LambdaResNetSmall"  # as in the example's model.config


class Served:
    """The mock server of a model's export, as `model.config` names it.

    Attributes:
        exported: the folders of versions 1 and 2.
        files, pixels: three PNGs of the model's size, and what is in them.
        features, probabilities: of Keras for them.
    """

    def __init__(self, model, export, folder):
        self.exported = [folder / NAME / version for version in "12"]
        for version in self.exported:
            shutil.copytree(export, version)
        text = (EXAMPLE / "model.config").read_text()
        config = folder / "model.config"
        config.write_text(text.replace(f"/models/{NAME}", str(folder / NAME)))
        rng = np.random.default_rng(0)
        pixels = rng.integers(0, 256, (3, *SHAPE), np.uint8)
        self.pixels = pixels.astype(np.float32)
        self.files = [folder / f"{index}.png" for index in range(3)]
        for file, image in zip(self.files, pixels, strict=True):
            file.write_bytes(tf.io.encode_png(image).numpy())
        self.broken = folder / "broken.jpg"
        self.broken.write_bytes(self.files[0].read_bytes()[:50])
        head = model.layers[-1]
        network = tf.keras.Model(model.inputs, [head.input, head.output])
        outputs = network.predict(self.pixels, verbose=0)
        self.features, self.probabilities = outputs
        command = [sys.executable, "-m", "examples.serving.mock_server"]
        command += ["--model_config_file", str(config)]
        command += ["--port", "0", "--rest_api_port", "0"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        ports = re.findall(r"port (\d+)", self._process.stdout.readline())
        self.ports = dict(zip(CLIENTS, ports, strict=True))

    def end(self):
        self._process.terminate()
        self._process.communicate()

    def client(self, protocol):
        """A client, which is closed behind `with`."""
        address = f"127.0.0.1:{self.ports[protocol]}"
        return contextlib.closing(CLIENTS[protocol](address, NAME))

    def ask(self, protocol, batch, signature):
        with self.client(protocol) as client:
            return client.answer(client.send(client.request(signature, batch)))
