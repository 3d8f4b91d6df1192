"""Times exports against the Keras models that they were made from.

    python -m benchmarks.serving.exports        five minutes

On the CPU, in turns. Exports run in the session of TensorFlow 1, as in TF
Serving; one that is not folded is the model saved as it is.
"""

import functools
import pathlib
import tempfile

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.serving import runtimes
from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf.serving import standalone

NETWORKS = {
    "LambdaResNet50": (models.LambdaResNet50, (224, 224, 3), 1000),
    "ResNetRS50-SE": (models.ResNetRS50, (224, 224, 3), 1000),
    "digits": (models.LambdaResNetSmall, (8, 8, 1), 10),
}
BATCHES = (1, 8, 32)
LEAST = 5  # calls of each, however long they take


def load_export(place):
    session = standalone.Session(tf, place)
    return lambda x: session.run("serving_default", {"images": x})


def ways(name, folder):
    """Returns what classifies images by a network, by its name."""
    tf.keras.backend.clear_session()
    builder, shape, classes = NETWORKS[name]
    model = builder(weights=None, input_shape=shape, classes=classes)
    spec = tf.TensorSpec((None, *shape), tf.float32, "images")
    compiled = tf.function(
        lambda images: {"logits": model(images, training=False)},
        input_signature=[spec],
    )
    plain, module = folder / f"{name}-unfolded", tf.Module()
    module.weights = compiled.get_concrete_function().graph.variables
    signatures = {"serving_default": compiled}
    tf.saved_model.save(module, str(plain), signatures=signatures)
    export = serving.export_model(model, folder, name)
    return {
        "Keras, predict_on_batch": model.predict_on_batch,
        "Keras, tf.function": lambda images: compiled(images)["logits"].numpy(),
        "export": load_export(export),
        "export, not folded": load_export(plain),
    }


@records.script("exports", seconds=6.0)
def main(recorder, options):
    tf.get_logger().setLevel("ERROR")
    tf.keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        made = functools.lru_cache(1)(ways)

        def measure(case):
            name, batch = case.values()
            images = runtimes.some_images(batch, NETWORKS[name][1])
            functions = {
                what: functools.partial(run, images)
                for what, run in made(name, pathlib.Path(scratch)).items()
            }
            return {"seconds": timing.turns(functions, options.seconds, LEAST)}

        recorder.fill(records.cases(network=NETWORKS, batch=BATCHES), measure)
