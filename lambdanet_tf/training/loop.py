"""A training run: from a recipe to a folder with weights and a report."""

import dataclasses
import time

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.extras import require
from lambdanet_tf.training import pictures
from lambdanet_tf.training import runs
from lambdanet_tf.training.inputs import Inputs
from lambdanet_tf.training.inputs import load_images
from lambdanet_tf.training.networks import build_network
from lambdanet_tf.training.networks import network_arguments
from lambdanet_tf.training.networks import set_precision
from lambdanet_tf.training.optimizer import RecipeOptimizer
from lambdanet_tf.training.progress import ProgressBar
from lambdanet_tf.training.report import report
from lambdanet_tf.training.schedule import recipe_schedule
from lambdanet_tf.training.steps import evaluation_step
from lambdanet_tf.training.steps import training_step

_EXAMPLES = 16


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where and how a recipe runs: nothing that changes what it computes.

    Attributes:
        runs: str. The folder of all runs.
        steps_per_execution: int. Steps of one call to the device.
        jit_compile: bool. Whether XLA compiles the step.
    """

    runs: str = "runs"
    steps_per_execution: int = 1
    jit_compile: bool = False


def train(recipe, options=None, say=print):
    """Trains a recipe's network and writes its run folder.

    Args:
        recipe: `Recipe`.
        options: `RunOptions` or None.
        say: callable that shows a line of text.

    Returns:
        The `RunFolder` of the finished run.

    Raises:
        ValueError: if the recipe does not fit its data or network.
        ImportError: if an optional package is missing.
        OSError: if the run folder cannot be written.
    """
    return Training(recipe, options or RunOptions(), say).run()


class Training:
    """One run in progress; `train` is the way to use it.

    Args:
        recipe: `Recipe`.
        options: `RunOptions`.
        say: callable that shows a line of text.
    """

    def __init__(self, recipe, options, say=print):
        require("matplotlib.figure", extra="plot")
        self.recipe, self.options, self.say = recipe, options, say
        self.images = load_images(recipe)
        tf.keras.utils.set_random_seed(recipe.seed)
        set_precision(recipe.precision)
        self.strategy = tf.distribute.get_strategy()
        self.inputs = Inputs(recipe, self.images, self.strategy)
        self.arguments = network_arguments(recipe, self.images)
        with self.strategy.scope():
            self.model = build_network(recipe.model, self.arguments)
            self.optimizer = recipe_optimizer(
                recipe, self.inputs.steps_per_epoch
            ).attach(self.model)
        self.folder = runs.RunFolder.create(options.runs)
        self.rows, self.best = [], None

    def run(self):
        """Trains, evaluates and reports; returns the `RunFolder`."""
        recipe = self.recipe
        self._announce()
        self._write_record("running", {})
        take = training_step(
            self.model,
            self.optimizer,
            self.strategy,
            recipe.batch_size,
            recipe.label_smoothing,
            self.options.steps_per_execution,
            self.options.jit_compile,
        )
        self._evaluate_batch = evaluation_step(self.model, self.strategy)
        batches = iter(self.inputs.training())
        bar = ProgressBar(
            recipe.epochs, self.inputs.steps_per_epoch, recipe.batch_size
        )
        self._began, self._training_seconds = time.perf_counter(), 0.0
        for epoch in range(1, recipe.epochs + 1):
            self._train_epoch(epoch, take, batches, bar)
        return self._finish()

    def _train_epoch(self, epoch, take, batches, bar):
        start, totals = time.perf_counter(), []
        per_epoch = self.inputs.steps_per_epoch
        step = (epoch - 1) * per_epoch
        while step < epoch * per_epoch:
            totals.append(take(batches))
            step += self.options.steps_per_execution
            bar.start_once(step)
            if bar.wants():
                bar.show(step, f"loss {_means(totals[-20:])[0]:.4f}")
        loss, accuracy = _means(totals)
        seconds = time.perf_counter() - start
        self._training_seconds += seconds
        row = {
            "epoch": epoch,
            "step": step,
            "learning_rate": float(self.optimizer.rate(float(step - 1))),
            "loss": loss,
            "accuracy": accuracy,
            **self._validate(epoch),
            "images_per_second": per_epoch * self.recipe.batch_size / seconds,
            "seconds": time.perf_counter() - self._began,
        }
        self.rows.append(row)
        self.folder.write_metrics(self.rows)
        bar.finish_epoch(step, _figures(row))

    def _validate(self, epoch):
        """Evaluates with the averages; keeps the weights if they are best."""
        self._swap()
        figures = {}
        if self.images.validation is not None:
            figures = self._evaluate(self.images.validation, "validation_")
        # Of equally good epochs the latest: its averages reach further.
        score = figures.get("validation_accuracy", 0.0)
        if self.best is None or score >= self.best["score"]:
            self.best = {"epoch": epoch, "score": score, **figures}
            self.folder.write_weights(self.model)
        self._swap()
        return figures

    def _evaluate(self, split, prefix=""):
        sums = np.zeros(4)
        for batch in self.inputs.evaluation(split):
            sums += self._evaluate_batch(batch).numpy()
        loss, accuracy, top5 = sums[:3] / sums[3]
        return {
            f"{prefix}loss": loss,
            f"{prefix}accuracy": accuracy,
            f"{prefix}top5_accuracy": top5,
        }

    def _swap(self):
        if self.recipe.average_decay:
            self.optimizer.swap_averages()

    def _finish(self):
        self.model.load_weights(self.folder.file(runs.BEST_WEIGHTS))
        split = self.images.test
        metrics = {
            "best_epoch": self.best["epoch"],
            **self._evaluate(split),
            "test_images": split.num_images,
            **{k: v for k, v in self.best.items() if k.startswith("valid")},
            "seconds": time.perf_counter() - self._began,
            "images_per_second": len(self.rows)
            * self.inputs.steps_per_epoch
            * self.recipe.batch_size
            / self._training_seconds,
            "device": device_name(),
        }
        self.folder.write_bytes(
            "curves.png",
            pictures.learning_curves(
                self.rows, metrics["best_epoch"], metrics["accuracy"]
            ),
        )
        self._keep_predictions()
        record = self._write_record("finished", metrics)
        self.folder.write_text(
            "report.md",
            report(
                record,
                self.images.description,
                self.model.count_params(),
                (
                    ("Learning curves", "curves.png"),
                    ("Predictions", "predictions.png"),
                ),
            ),
        )
        self.say(
            f"\nheld-out accuracy: {metrics['accuracy']:.2%} of "
            f"{split.num_images} test images (weights of epoch "
            f"{metrics['best_epoch']})\nwritten to {self.folder.path}/: "
            f"{runs.BEST_WEIGHTS}, report.md, curves.png, predictions.png, "
            "metrics.csv, run.json"
        )
        return self.folder

    def _keep_predictions(self):
        """Writes a picture of the test images, and a few of them as arrays."""
        images, labels, logits = [], [], []
        for batch in self.inputs.evaluation(self.images.test):
            kept = batch[2].numpy() > 0
            images.append(batch[0].numpy()[kept])
            labels.append(batch[1].numpy()[kept])
            logits.append(self.model(batch[0], training=False).numpy()[kept])
        images, labels = np.concatenate(images), np.concatenate(labels)
        probabilities = tf.nn.softmax(np.concatenate(logits)).numpy()
        picture = pictures.predictions(
            images, labels, probabilities, self.images.classes
        )
        self.folder.write_bytes("predictions.png", picture)
        self.folder.write_arrays(
            "examples.npz", images=images[:_EXAMPLES], labels=labels[:_EXAMPLES]
        )

    def _announce(self):
        recipe = self.recipe
        self.say(
            f"{recipe.model}: {self.model.count_params():,} parameters; "
            f"{runs.keras_version()}, TensorFlow {tf.__version__}, "
            f"{device_name()}\n{self.images.description}\n"
            f"{recipe.epochs} epochs of {self.inputs.steps_per_epoch} steps, "
            f"{recipe.batch_size} images each; run folder {self.folder.path}"
        )

    def _write_record(self, status, metrics):
        size, channels = self.recipe.image_size, self.images.channels
        record = {
            "format": runs.FORMAT,
            "status": status,
            "model": {
                "builder": self.recipe.model,
                "arguments": self.arguments,
            },
            "recipe": self.recipe.to_dict(),
            "classes": list(self.images.classes),
            "image": {
                "height": size,
                "width": size,
                "channels": channels,
                "minimum": 0,
                "maximum": 255,
            },
            "metrics": metrics,
            "versions": runs.versions(),
            "command": runs.command(),
        }
        self.folder.write_record(record)
        return record


def recipe_optimizer(recipe, steps_per_epoch):
    """The optimiser of a recipe.

    Args:
        recipe: `Recipe`.
        steps_per_epoch: int. Batches in one epoch.

    Returns:
        A `RecipeOptimizer`; `attach` it to the model.
    """
    updates = max(steps_per_epoch // recipe.accumulation, 1)
    return RecipeOptimizer(
        recipe_schedule(recipe, updates),
        rule=recipe.optimizer,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        clip_norm=recipe.clip_norm,
        accumulation=recipe.accumulation,
        average_decay=recipe.average_decay,
        scale_losses=recipe.precision == "mixed_float16",
    )


def device_name():
    """What the run computes on, in words."""
    gpus = tf.config.list_logical_devices("GPU")
    kind = "GPU" if gpus else "CPU"
    number = len(gpus) or len(tf.config.list_logical_devices("CPU"))
    return f"{number} {kind}{'s' if number > 1 else ''}"


def _means(totals):
    loss, right, count = np.sum([total.numpy() for total in totals], axis=0)
    return float(loss / count), float(right / count)


def _figures(row):
    text = f"loss {row['loss']:.4f}  accuracy {row['accuracy']:.2%}"
    if "validation_accuracy" in row:
        text += f"  validation {row['validation_accuracy']:.2%}"
    return text
