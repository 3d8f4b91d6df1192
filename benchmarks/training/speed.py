"""Times train.py: its loop, its input pipelines, and two replicas.

    python -m benchmarks.training.speed                   ten minutes
    python -m benchmarks.training.speed --only pipeline --seconds 1

Every case is measured in a process of its own that may use as many cores as it
says. The image sets are synthetic and are written into a temporary folder.
"""

import pathlib
import tempfile
import time

import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from benchmarks.training import files as image_files
from lambdanet_tf import data
from lambdanet_tf.training import InputPipeline
from lambdanet_tf.training import RunOptions
from lambdanet_tf.training import resolve
from lambdanet_tf.training import train
from lambdanet_tf.training.loop import set_up
from lambdanet_tf.training.steps import training_step
from lambdanet_tf.training.steps import update_step

IMAGES = 256  # of a set on the disk
BATCH = 32  # of a pipeline alone
STEPS = 20  # of one or two replicas
CROP = {
    "image_size": 224,
    "augmentation": "random_crop",
    "flip": True,
    "validation_split": 0.0,
}
RECORDS = {**CROP, "data": "records:{folder}/records"}
PIPELINES = {
    "digits in memory, 8 px, affine": {},
    "arrays in memory, 32 px, shift and flip": {
        "data": "arrays:{folder}/small.npz",
        "image_size": 32,
        "augmentation": "pad_crop",
        "flip": True,
    },
    "arrays in memory, 500x375 to 224 px, random crop": CROP
    | {"data": "arrays:{folder}/large.npz"},
    "folder of JPEGs, 500x375 to 224 px, random crop": CROP
    | {"data": "folder:{folder}/folder"},
    "TFRecords, the same, not shuffled": RECORDS | {"shuffle_buffer": 1},
    "TFRecords, the same, shuffled": RECORDS | {"shuffle_buffer": IMAGES // 2},
}
PAUSE = 1.0  # seconds, in which the pipelines of the others fill their buffers
BARE = "decode, crop, resize and flip alone: a map over JPEGs in memory"
NETWORKS = {
    "LambdaResNetSmall, digits, 8 px, batch 64": {"epochs": 12},
    "LambdaResNet50, 64 px, batch 16": {
        "data": "arrays:{folder}/tiny.npz",
        "model": "LambdaResNet50",
        "image_size": 64,
        "batch_size": 16,
        "epochs": 5,
        "augmentation": "pad_crop",
    },
}
# The first is what the others are held to.
SCALING = (
    {"replicas": 1, "cores": 1, "batch": 64},
    {"replicas": 1, "cores": 2, "batch": 64},
    {"replicas": 2, "cores": 2, "batch": 64},
    {"replicas": 2, "cores": 2, "batch": 128},
)


def recipe_of(fields, folder):
    """A recipe whose data are in a folder."""
    if "data" in fields:
        fields = {**fields, "data": fields["data"].format(folder=folder)}
    return resolve("digits", fields)


def overhead(folder, name):
    """Seconds of a step, of the loop and of bare steps, of each epoch.

    An epoch of the loop of `train`, an epoch of the bare compiled step on
    batches of the same pipeline, and one on a batch that is held in memory
    take turns.
    """
    recipe = recipe_of(NETWORKS[name], folder)
    times = {"loop": [], "fed": [], "held": []}

    def seconds_of(next_batch):
        time.sleep(PAUSE)
        start = time.perf_counter()
        sums = [
            step(*next_batch(), tf.constant(number, tf.int64))
            for number in range(pipeline.steps_per_epoch)
        ]
        tf.add_n(sums).numpy()
        return (time.perf_counter() - start) / pipeline.steps_per_epoch

    def take_turns(model, row):
        times["loop"].append(recipe.batch_size / row["images_per_second"])
        times["fed"].append(seconds_of(lambda: next(fed)))
        times["held"].append(seconds_of(lambda: held))
        time.sleep(PAUSE)

    # The checkpoint after each epoch stops the clock of the loop.
    options = RunOptions(runs_dir=folder, checkpoint_epochs=1)
    pipeline, state = set_up(recipe, options, tf.distribute.get_strategy())
    step = tf.function(update_step(state, recipe))
    fed = iter(pipeline.training())
    held = next(fed)
    train(recipe, options, lambda text: None, take_turns)
    # The first epoch compiles; the second may still fill buffers.
    return {name: taken[2:] for name, taken in times.items()}


def pipeline(folder, name, seconds):
    """Images per second of a pipeline, alone."""
    if name == BARE:
        return bare_decoding(folder, seconds)
    recipe = recipe_of(PIPELINES[name], folder)
    images = data.load_images(
        recipe.data, recipe.validation_split, None, recipe.shuffle_buffer
    )
    batches = InputPipeline(recipe, images).training_batches(BATCH)
    return images_per_second(batches, seconds)


def images_per_second(batches, seconds):
    """The rate of a pipeline after its first batch."""
    batches, images = iter(batches), 0
    next(batches)
    start = time.perf_counter()
    while not images or time.perf_counter() - start < seconds:
        images += next(batches)[0].shape[0]
    return images / (time.perf_counter() - start)


def bare_decoding(folder, seconds):
    """What decoding and resizing allow, if nothing else were done."""
    files = sorted(str(p) for p in pathlib.Path(folder).glob("folder/*/*/*"))
    encoded = tf.constant([pathlib.Path(f).read_bytes() for f in files])

    def crop(number):
        image = encoded[number % len(files)]
        seed = tf.stack([0, number])
        begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(image),
            tf.zeros([1, 0, 4]),
            seed,
            min_object_covered=0.0,
            area_range=(0.08, 1.0),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        box = tf.concat([begin[:2], extent[:2]], axis=0)
        pixels = tf.io.decode_and_crop_jpeg(image, box, channels=3)
        pixels = tf.image.resize(pixels, [224, 224])
        return tf.image.stateless_random_flip_left_right(pixels, seed), 0

    numbers = tf.data.Dataset.range(10**9, output_type=tf.int32)
    batches = numbers.map(crop, num_parallel_calls=tf.data.AUTOTUNE)
    batches = batches.batch(BATCH, drop_remainder=True).prefetch(
        tf.data.AUTOTUNE
    )
    return images_per_second(batches, seconds)


def scaling(folder, replicas, batch_size):
    """Images per second of steps on so many replicas."""
    recipe = resolve("digits", {"image_size": 32, "batch_size": batch_size})
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * replicas
    tf.config.set_logical_device_configuration(cpu, devices)
    strategy = tf.distribute.get_strategy()
    if replicas > 1:
        strategy = tf.distribute.MirroredStrategy(
            [f"CPU:{number}" for number in range(replicas)],
            cross_device_ops=tf.distribute.ReductionToOneDevice(),
        )
    pipeline, state = set_up(recipe, RunOptions(), strategy)
    with strategy.scope():
        take_steps = training_step(state, recipe)
    batches, number = iter(pipeline.training()), tf.constant(STEPS)
    take_steps(batches, tf.constant(0, tf.int64), tf.constant(1))
    start = time.perf_counter()
    take_steps(batches, tf.constant(1, tf.int64), number).numpy()
    return batch_size * STEPS / (time.perf_counter() - start)


def write_files(folder):
    """All image sets."""
    image_files.write_arrays(f"{folder}/tiny.npz", 64 + 8, 64, 64)
    image_files.write_arrays(f"{folder}/small.npz", IMAGES, 32, 32)
    image_files.write_arrays(f"{folder}/large.npz", IMAGES // 2)
    files = list(image_files.jpegs(IMAGES))
    image_files.write_folder(f"{folder}/folder", files)
    image_files.write_records(f"{folder}/records", files)


def cases():
    """What is measured."""
    pipelines = [*PIPELINES, BARE]
    return [
        *records.cases(part=["loop"], network=NETWORKS),
        *records.cases(part=["pipeline"], pipeline=pipelines, cores=(1, 2)),
        *({"part": "replicas", **row} for row in SCALING),
    ]


def measure(folder, case, seconds):
    """Measures a case; returns what is recorded."""
    if case["part"] == "loop":
        return {"seconds": overhead(folder, case["network"])}
    if case["part"] == "pipeline":
        rate = pipeline(folder, case["pipeline"], seconds)
    else:
        rate = scaling(folder, case["replicas"], case["batch"])
    return {"images_per_second": rate}


def main(arguments=None):
    recorder, options = records.start(
        "training", __doc__, arguments, seconds=3.0
    )
    child = "benchmarks.training.speed:measure"
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder)
        recorder.fill(
            cases(),
            lambda case: timing.in_child(
                *(child, folder, case, options.seconds),
                cores=case.get("cores", 2),
            ),
        )


if __name__ == "__main__":
    main()
