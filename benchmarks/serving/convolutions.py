"""Times an export's signature against its convolutions alone, on a CPU.

    python -m benchmarks.serving.convolutions            three minutes
    python -m benchmarks.serving.convolutions --only LambdaResNet26T --seconds 2

No export in TensorFlow takes less than TensorFlow's own convolutions. They are
every `Conv2D` of the signature's graph with the input that it has there, one
after the other, and nothing else. Both run in a session, as in TF Serving, and
take turns.
"""

import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

from benchmarks import records
from benchmarks import timing
from benchmarks.serving import runtimes

NETWORKS = ("LambdaResNet50", "LambdaResNet26T", "LambdaResNet50TS")
SIZE = 160
BATCHES = (1, 8)
_ATTRIBUTES = (
    *("strides", "padding", "explicit_paddings"),
    *("dilations", "data_format"),
)


def convolutions(folder, images):
    """A function that runs those of an export, and how many they are.

    Their inputs are the activations of images.
    """
    loaded = tf.saved_model.load(str(folder))
    frozen = convert_to_constants.convert_variables_to_constants_v2(
        loaded.signatures["serving_default"]
    )
    operations = frozen.graph.get_operations()
    found = [x for x in operations if x.type == "Conv2D"]
    reads = frozen.prune(
        "images:0", [tensor for x in found for tensor in x.inputs]
    )
    arrays = [tensor.numpy() for tensor in reads(tf.constant(images))]
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        last = []
        for operation, x, kernel in zip(
            found, arrays[::2], arrays[1::2], strict=True
        ):
            # Variables: what no optimizer of graphs takes for constants.
            x, kernel = v1.Variable(x), v1.Variable(kernel)
            with tf.control_dependencies(last):
                outputs = tf.raw_ops.Conv2D(
                    input=x,
                    filter=kernel,
                    **{name: operation.get_attr(name) for name in _ATTRIBUTES},
                )
            last = [outputs.op]
        # An optimizer would drop them: nothing reads their outputs.
        config = v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        session = v1.Session(config=config)
        session.run(v1.global_variables_initializer())
        return session.make_callable(last[0]), len(found)


def measure(name, folder, batch, seconds):
    images = runtimes.some_images(batch, (SIZE, SIZE, 3))
    alone, number = convolutions(folder, images)
    signature = runtimes.tensorflow(folder, batch)
    both = {"signature": lambda: signature(images), "convolutions": alone}
    return {"convolutions": number, "seconds": timing.turns(both, seconds)}


def main(arguments=None):
    recorder, options = records.start(
        "convolutions", __doc__, arguments, seconds=20.0, batch=BATCHES
    )
    sizes = {"size": SIZE, "others": ()}
    runtimes.fill(recorder, options, NETWORKS, measure, **sizes)


if __name__ == "__main__":
    main()
