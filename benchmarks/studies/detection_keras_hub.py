"""Trains KerasHub's RetinaNet on scenes, in Keras 3, with a lambda backbone.

    python -m benchmarks.studies.detection_keras_hub            # 10 minutes
    python -m benchmarks.studies.detection_keras_hub --steps 5

The backbone is small and has lambda layers in the last blocks of c4 and c5, as
in `detection.yaml`. The baseline, which was named before the first run: the
same detector with an untrained backbone, which keeps its initial weights while
all else is trained alike. Each detector is saved as `.keras`, loaded, and what
is loaded finds the digits of the held-out scenes. The evaluation is COCO's, by
pycocotools, which the extra `garden` installs. `--picture FILE` draws what the
detectors of this call find.
"""

import contextlib
import io
import math
import pathlib
import time

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from benchmarks import records
from benchmarks.studies import detection_scenes
from lambdanet_tf.keras_hub import NetworkBackbone

BATCH, STEPS, RATE = 8, 600, 1e-3
CLASSES, OBJECTS = 10, 6  # of a scene, with padding
SHAPE = (detection_scenes.SIZE, detection_scenes.SIZE, 3)
DETECTORS = {"lambda": True, "untrained backbone": False}
NETWORK = {
    "stages": ("CC", "CC", "CL", "LL"),
    "widths": (16, 32, 64, 128),
    "stem_filters": (16, 16, 32, 32),
    "norm_momentum": 0.98,
}
METRICS = ("AP", "AP50", "AP75")
SHOWN = 6  # scenes of the picture


def detector(trained):
    """A RetinaNet whose backbone is trained or keeps its initial weights."""
    encoder = NetworkBackbone("LambdaResNet50", SHAPE, **NETWORK)
    encoder.trainable = trained
    backbone = keras_hub.models.RetinaNetBackbone(
        encoder, min_level=3, max_level=5, use_p5=False, image_shape=SHAPE
    )
    model = keras_hub.models.RetinaNetObjectDetector(
        backbone,
        num_classes=CLASSES,
        bounding_box_format="yxyx",
        pre_logits_num_conv_layers=1,
        use_prediction_head_norm=True,
        prediction_decoder=keras_hub.layers.NonMaxSuppression(
            "yxyx", from_logits=True, confidence_threshold=0.05,
            max_detections=20,
        ),
    )  # fmt: skip
    # KerasHub gives the bias by which an object is rare at the start to the
    # head of the boxes. The classes need it.
    heads = model.classification_head, model.box_head
    for head, prior in zip(heads, (-np.log(99), 0.0), strict=True):
        bias = head.prediction_layer.bias
        bias.assign(np.full(bias.shape, prior, "float32"))
    return model


def arrays(scenes):
    """Images, boxes and labels; what pads the last two is -1."""
    images = np.stack([scene.image for scene in scenes])
    boxes = np.full([len(scenes), OBJECTS, 4], -1, "float32")
    labels = np.full([len(scenes), OBJECTS], -1, "int32")
    for number, scene in enumerate(scenes):
        count = len(scene.labels)
        boxes[number, :count] = scene.boxes
        labels[number, :count] = scene.labels - 1
    return images, boxes, labels


def train(model, scenes, steps):
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps - steps // 10, warmup_target=RATE, warmup_steps=steps // 10
    )
    model.compile(keras.optimizers.Adam(rate, clipnorm=10.0), jit_compile=False)
    images, boxes, labels = arrays(scenes)
    parts = images, {"boxes": boxes, "labels": labels}
    batches = tf.data.Dataset.from_tensor_slices(parts)
    batches = batches.shuffle(len(images), seed=0).repeat().batch(BATCH)
    batches = batches.map(lambda x, y: (tf.cast(x, tf.float32), y))
    model.fit(batches.take(steps), verbose=2)


def evaluate(found, scenes):
    """AP of COCO, averaged over thresholds of the overlap, and at two."""
    truth, guesses = [], []

    def entry(number, box, label):
        top, left, bottom, right = map(float, box)
        size = right - left, bottom - top
        place = {"bbox": [left, top, *size], "area": math.prod(size)}
        return place | {"image_id": number, "category_id": int(label)}

    for number, scene in enumerate(scenes):
        for box, label in zip(scene.boxes, scene.labels - 1, strict=True):
            facts = {"id": len(truth) + 1, "iscrowd": 0}
            truth.append(entry(number, box, label) | facts)
        keys, count = ("boxes", "labels", "confidence"), "num_detections"
        rows = (found[x][number][: int(found[count][number])] for x in keys)
        for box, label, score in zip(*rows, strict=True):
            guesses.append(entry(number, box, label) | {"score": float(score)})
    coco = COCO()
    coco.dataset = {
        "images": [{"id": number} for number in range(len(scenes))],
        "annotations": truth,
        "categories": [{"id": label} for label in range(CLASSES)],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
        if not guesses:
            return dict.fromkeys(METRICS, 0.0)
        evaluation = COCOeval(coco, coco.loadRes(guesses), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return dict(zip(METRICS, map(float, evaluation.stats), strict=False))


def run(name, scenes, steps, folder):
    """Trains, saves, loads and evaluates a detector: a row of the record."""
    keras.utils.set_random_seed(0)
    model = detector(DETECTORS[name])
    begin, begin_cpu = time.monotonic(), time.process_time()
    train(model, scenes["train"], steps)
    taken = time.monotonic() - begin, time.process_time() - begin_cpu
    path = folder / f"{name.split()[0]}.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    images, *_ = arrays(scenes["heldout"])
    # Of one size: KerasHub's suppression of overlaps does not take others.
    found = loaded.predict(images.astype("float32"), batch_size=25, verbose=0)
    row = {
        "parameters": model.count_params(),
        "backbone_parameters": model.backbone.image_encoder.count_params(),
        "seconds": round(taken[0]),
        "cpu_seconds": round(taken[1]),
        "metrics": evaluate(found, scenes["heldout"]),
    }
    return row, {key: value[:SHOWN] for key, value in found.items()}


def likeliest(scene, outputs, number):
    """As many detections in a scene as it has digits, and their texts."""
    order = np.argsort(-outputs["confidence"][number])[: len(scene.labels)]
    boxes, labels, scores = (
        outputs[key][number][order] for key in ("boxes", "labels", "confidence")
    )
    pairs = zip(labels, scores, strict=True)
    texts = [f"{label} {score:.2f}" for label, score in pairs]
    return without_masks(scene, boxes, labels), texts


def without_masks(scene, boxes, labels):
    masks = np.zeros([len(boxes), *scene.image.shape[:2]], bool)
    return detection_scenes.Scene(scene.image, masks, labels, boxes)


def main(arguments=None):
    choices = {"steps": STEPS, "runs": "runs/detection_keras_hub"}
    recorder, options = records.start(
        "detection_keras_hub", __doc__, arguments, picture=None, **choices
    )
    runs = pathlib.Path(options.runs)
    runs.mkdir(parents=True, exist_ok=True)
    scenes = {
        part: list(detection_scenes.make_scenes(part))
        for part in ("train", "heldout")
    }
    found = {}

    def measure(case):
        name, steps = case.values()
        row, found[name] = run(name, scenes, steps, runs)
        return row

    cases = records.cases(backbone=DETECTORS, steps=[options.steps])
    recorder.fill(cases, measure)
    if options.picture and found:
        shown = scenes["heldout"][:SHOWN]
        figure = detection_scenes.picture(
            [without_masks(x, x.boxes, x.labels) for x in shown],
            [scene.labels - 1 for scene in shown],
            {
                name: [likeliest(x, y, i) for i, x in enumerate(shown)]
                for name, y in found.items()
            },
        )
        figure.savefig(options.picture, dpi=90)


if __name__ == "__main__":
    main()
