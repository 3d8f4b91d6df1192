"""Learning rate over steps."""

import math

import tensorflow as tf


@tf.keras.utils.register_keras_serializable(package="lambdanet_tf")
class WarmupSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A linear warm-up from 0, then a decay.

    With t the step, w the warm-up steps, n all steps and p the peak:

        t < w:         p t / w
        cosine:        p (1 + cos(pi (t - w) / (n - w))) / 2
        exponential:   p decay^floor((t - w) / every)
        constant:      p

    After the last step the rate stays what it is then.

    Args:
        peak: float. The highest rate.
        num_steps: int. Steps of the whole training.
        warmup_steps: int. Steps of the warm-up, among them.
        shape: str. `"cosine"`, `"exponential"` or `"constant"`.
        decay: float. Exponential: the factor of each decay.
        every: int. Exponential: steps between two decays.

    Raises:
        ValueError: if the warm-up is longer than the training, or `shape` is
            unknown.
    """

    def __init__(
        self,
        peak,
        num_steps,
        warmup_steps=0,
        shape="cosine",
        decay=0.99,
        every=1,
    ):
        super().__init__()
        if shape not in ("cosine", "exponential", "constant"):
            raise ValueError(
                "`shape` must be cosine, exponential or constant. Received: "
                f"{shape!r}."
            )
        if not 0 <= warmup_steps <= num_steps:
            raise ValueError(
                "`warmup_steps` must lie between 0 and `num_steps`. Received: "
                f"{warmup_steps} of {num_steps} steps."
            )
        self.peak = peak
        self.num_steps = num_steps
        self.warmup_steps = warmup_steps
        self.shape = shape
        self.decay = decay
        self.every = every

    def __call__(self, step):
        step = tf.minimum(tf.cast(step, tf.float32), float(self.num_steps))
        after = tf.maximum(step - self.warmup_steps, 0.0)
        if self.shape == "cosine":
            length = max(self.num_steps - self.warmup_steps, 1)
            factor = 0.5 * (1.0 + tf.cos(math.pi * after / length))
        elif self.shape == "exponential":
            factor = tf.pow(self.decay, tf.floor(after / self.every))
        else:
            factor = tf.ones_like(after)
        if self.warmup_steps:
            rising = step / self.warmup_steps
            factor = tf.where(step < self.warmup_steps, rising, factor)
        return self.peak * factor

    def get_config(self):
        return {
            "peak": self.peak,
            "num_steps": self.num_steps,
            "warmup_steps": self.warmup_steps,
            "shape": self.shape,
            "decay": self.decay,
            "every": self.every,
        }
