"""Metrics and predictions of a model on an image set."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.training.batches import InputPipeline
from lambdanet_tf.training.steps import evaluation_step
from lambdanet_tf.training.steps import prediction_step

_MAX_PREDICTIONS = 2000


class Evaluation:
    """Evaluates a model; create it in the scope of the model's strategy.

    Args:
        model: returns logits.
        pipeline: the input pipeline of the run.
        check: is called after each batch; it may raise.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        pipeline: InputPipeline,
        check: Callable[[], Any] | None = None,
    ):
        self._pipeline, self._check = pipeline, check or (lambda: None)
        self._evaluate = evaluation_step(model)
        self._predict = prediction_step(model)

    def metrics(self, source: data.Source, prefix: str = "") -> dict[str, Any]:
        """Returns loss and accuracies over a source.

        Args:
            source: of the pipeline's image set.
            prefix: put before each name.

        Returns:
            `loss` (without label smoothing), `accuracy`, `top5_accuracy` where
            there are more than 5 classes, `images`: how many could be read.

        Raises:
            ValueError: if none could be read.
            RuntimeError: if an image was lost on its way here.
        """
        sums = np.zeros(5)
        for batch in self._pipeline.evaluation(source):
            sums += self._evaluate(batch).numpy()
            self._check()
        if not sums[3]:
            raise ValueError("None of the evaluation images could be read.")
        if sums[3] + sums[4] != source.num_images:
            raise RuntimeError(
                f"{source.num_images} images were to be evaluated. Evaluated: "
                f"{sums[3]:.0f}, unreadable: {sums[4]:.0f}."
            )
        loss, top1, top5 = (float(x) for x in sums[:3] / sums[3])
        metrics = {"loss": loss, "accuracy": top1}
        if len(self._pipeline.images.classes) > 5:
            metrics["top5_accuracy"] = top5
        metrics["images"] = int(sums[3])
        return {prefix + name: value for name, value in metrics.items()}

    def predictions(
        self, source: data.Source
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the first images of a source with their predictions.

        Args:
            source: of the pipeline's image set.

        Returns:
            Images, labels and probabilities of some thousand images at most,
            those of this process: float32 `(number, height, width, channels)`,
            int64 `(number,)`, float32 `(number, classes)`.
        """
        columns, count = [], 0
        for batch in self._pipeline.evaluation(source):
            images, labels, weights, _ = batch
            probabilities = self._predict(batch)
            columns.append(
                [
                    self._local(x)
                    for x in (images, labels, probabilities, weights)
                ]
            )
            count += len(columns[-1][0])
            self._check()
            if count >= _MAX_PREDICTIONS:
                break
        images, labels, probabilities, weights = (
            np.concatenate(column) for column in zip(*columns, strict=True)
        )
        kept = weights > 0
        return images[kept], labels[kept].argmax(-1), probabilities[kept]

    def _local(self, value):
        parts = self._pipeline.strategy.experimental_local_results(value)
        return np.concatenate(
            [tf.cast(part, tf.float32).numpy() for part in parts]
        )
