"""Accuracy, and a few test images with the network's answers."""

import numpy as np
import tensorflow as tf

from lambdanet_tf.training.steps import evaluation_step
from lambdanet_tf.training.steps import prediction_step

_MOST_ANSWERS = 2000


class Evaluation:
    """Evaluates a model on the splits of its image set.

    Args:
        model: `tf.keras.Model` that returns logits.
        inputs: `Inputs`.
        strategy: `tf.distribute.Strategy`.
    """

    def __init__(self, model, inputs, strategy):
        self._inputs, self._strategy = inputs, strategy
        self._evaluate = evaluation_step(model, strategy)
        self._predict = prediction_step(model, strategy)

    def figures(self, split, prefix=""):
        """Loss and accuracies over a split.

        Args:
            split: `Split`.
            prefix: str. Put before each name.

        Returns:
            A dictionary of floats: loss, accuracy, top5_accuracy, images (how
            many could be read).
        """
        sums = np.zeros(4)
        for batch in self._inputs.evaluation(split):
            sums += self._evaluate(batch).numpy()
        if not sums[3]:
            raise ValueError("None of the evaluation images could be read.")
        names = ("loss", "accuracy", "top5_accuracy")
        figures = {
            prefix + name: float(value / sums[3])
            for name, value in zip(names, sums[:3], strict=True)
        }
        return {**figures, f"{prefix}images": int(sums[3])}

    def answers(self, split):
        """The first images of a split with the network's answers.

        Args:
            split: `Split`.

        Returns:
            Three arrays: images, labels, probabilities; of some thousand
            images at most, those of this process.
        """
        columns, count = [], 0
        for batch in self._inputs.evaluation(split):
            probabilities = self._predict(batch)
            columns.append(
                [self._local(x) for x in (*batch[:2], probabilities, batch[2])]
            )
            count += len(columns[-1][0])
            if count >= _MOST_ANSWERS:
                break
        images, labels, probabilities, weights = (
            np.concatenate(column) for column in zip(*columns, strict=True)
        )
        kept = weights > 0
        return images[kept], labels[kept], probabilities[kept]

    def _local(self, value):
        parts = self._strategy.experimental_local_results(value)
        return np.concatenate([_floats(part) for part in parts])


def _floats(tensor):
    if tensor.dtype == tf.bfloat16:
        tensor = tf.cast(tensor, tf.float32)
    return tensor.numpy()
