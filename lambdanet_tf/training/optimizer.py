"""The paper's optimisation, as one Keras optimiser for both Kerases.

What Keras' own optimisers do differently, silently, and why this one exists:
their `weight_decay` is decoupled (ten times weaker at momentum 0.9), Keras 3
clips the gradients of each replica before it adds them, and the moving averages
of the two generations start differently, have no warm-up and leave out the
statistics of batch normalisation.
"""

import dataclasses

import tensorflow as tf

from lambdanet_tf.training.kernels import decayed_weights
from lambdanet_tf.training.kernels import raw_variable
from lambdanet_tf.training.rules import RULES

_KERAS_3 = hasattr(tf.keras, "ops")
_FIRST_LOSS_SCALE = 2.0**15
_STEPS_TO_GROW = 2000


@dataclasses.dataclass
class _ModelWeights:
    """The weights of the model that an optimiser refers to.

    In an object of its own, because Keras 3 counts whatever weights stand in
    an optimiser's attributes among the variables of the optimiser.

    Attributes:
        trained: those that it was built for.
        averaged: those whose averages it keeps, if it keeps any.
        decayed: ids of those that decay.
    """

    trained: list = dataclasses.field(default_factory=list)
    averaged: list = dataclasses.field(default_factory=list)
    decayed: set = dataclasses.field(default_factory=set)


@tf.keras.utils.register_keras_serializable(package="lambdanet_tf")
class RecipeOptimizer(tf.keras.optimizers.Optimizer):
    """Momentum methods with coupled decay, clipping and averages.

    One call of `apply_gradients` with gradients g does, in this order:

    1. sum g over the replicas;
    2. with `accumulation` c > 1, add g / c to a store, and go on only at every
       c-th call, with what the store then holds;
    3. scale g by min(1, clip_norm / |g|), |g| the norm of all gradients;
    4. add weight_decay * w to the gradients of the kernels;
    5. update the weights by `rule`: see `lambdanet_tf.training.rules`;
    6. with t the number of updates so far, this one included, move the
       averages: a <- d a + (1 - d) w, d = min(average_decay,
       (1 + t) / (10 + t)), for all weights of the model, the statistics of
       batch normalisation included.

    `attach(model)` must be called before training if there is weight decay or
    an average, for only the model knows its kernels and statistics.

    Args:
        learning_rate: float or schedule, over updates.
        rule: str. `"sgd"`, `"rmsprop"` or `"adam"`.
        momentum: float.
        weight_decay: float.
        clip_norm: float or None.
        accumulation: int.
        average_decay: float; 0 for no average.
        scale_losses: bool. For float16: multiply the loss (`scale_loss`) by a
            power of two that keeps small gradients, and leave out the updates
            whose gradients are not finite.

    Raises:
        ValueError: if an argument is out of its range, or an attached model
            was needed and is missing.
    """

    def __init__(
        self,
        learning_rate=0.1,
        rule="sgd",
        momentum=0.9,
        weight_decay=0.0,
        clip_norm=None,
        accumulation=1,
        average_decay=0.0,
        scale_losses=False,
        name="recipe_optimizer",
    ):
        _check_arguments(rule, accumulation, average_decay)
        if _KERAS_3:
            super().__init__(learning_rate, name=name)
        else:
            super().__init__(name=name, jit_compile=False)
            self._learning_rate = self._build_learning_rate(learning_rate)
        self.rule = rule
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm or None
        self.accumulation = accumulation
        self.average_decay = average_decay
        self.scale_losses = scale_losses
        self._model = _ModelWeights()
        self._is_built = False
        self.is_swapped = False

    def attach(self, model):
        """Says which weights are kernels, and which are to be averaged.

        Args:
            model: built `tf.keras.Model` whose weights will be trained.

        Returns:
            The optimiser.
        """
        self._model.decayed = {
            id(raw_variable(w)) for w in decayed_weights(model)
        }
        self._model.averaged = [
            w for w in model.weights if raw_variable(w).dtype.is_floating
        ]
        return self

    def build(self, variables):
        if self._is_built:
            return
        needs_model = self.weight_decay or self.average_decay
        if needs_model and not self._model.averaged:
            raise ValueError(
                "`weight_decay` and `average_decay` need the model: call "
                "`optimizer.attach(model)` before training."
            )
        super().build(variables)
        self._model.trained = list(variables)
        slots = RULES[self.rule][1]
        self._slots = [
            [self._new_slot(w, name, start) for name, start in slots.items()]
            for w in variables
        ]
        self._stores = [
            [self._new_slot(w, "store", 0.0)] if self.accumulation > 1 else []
            for w in variables
        ]
        self._averages = [
            self._new_slot(w, "average", raw_variable(w))
            for w in (self._model.averaged if self.average_decay else ())
        ]
        if self.scale_losses:
            self._loss_scale = self._new_number(_FIRST_LOSS_SCALE, "loss_scale")
            self._good_steps = self._new_number(0.0, "good_steps")
        self._is_built = True

    def scale_loss(self, loss):
        """The loss to differentiate."""
        return loss * self._loss_scale if self.scale_losses else loss

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        del name, kwargs
        grads, variables = zip(*grads_and_vars, strict=True)
        self.apply(grads, variables)
        return self.iterations

    def apply(self, grads, trainable_variables=None):
        variables = trainable_variables or self._model.trained
        with tf.init_scope():
            self.build(list(variables))
        if [id(v) for v in variables] != [id(v) for v in self._model.trained]:
            raise ValueError(
                "The gradients must be those of the weights that the optimiser "
                f"was built for, in their order. Received: {len(variables)} "
                f"weights, built for {len(self._model.trained)}."
            )
        context = tf.distribute.get_replica_context()
        grads = [
            tf.zeros_like(raw_variable(v)) if g is None else g
            for g, v in zip(grads, variables, strict=True)
        ]
        grads = context.all_reduce(tf.distribute.ReduceOp.SUM, grads)
        grads, finite = self._unscaled(grads)
        grads, stores, gate = self._accumulated(grads, finite)
        grads = self._clipped(grads)
        context.merge_call(
            self._update, args=(grads, stores, self._statistics(), gate, finite)
        )
        self.iterations.assign_add(1)

    def swap_averages(self):
        """Exchanges the model's weights and their averages.

        Call it before evaluating and again afterwards. Not inside a replica.
        `is_swapped` says whether the model has the averages now.
        """
        self.is_swapped = not self.is_swapped
        for average, weight in zip(
            self._averages, self._model.averaged, strict=True
        ):
            weight = raw_variable(weight)
            value = tf.identity(weight)
            weight.assign(average)
            average.assign(value)

    @property
    def updates(self):
        """How often the weights were updated; not every call need do it."""
        return self.iterations // self.accumulation

    def rate(self, updates):
        """The learning rate after so many updates."""
        rate = self._learning_rate
        return rate(updates) if callable(rate) else tf.convert_to_tensor(rate)

    def get_config(self):
        return {
            "learning_rate": self._rate_config(),
            "rule": self.rule,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "clip_norm": self.clip_norm,
            "accumulation": self.accumulation,
            "average_decay": self.average_decay,
            "scale_losses": self.scale_losses,
            "name": self.name,
        }

    def _rate_config(self):
        if _KERAS_3:
            return super().get_config()["learning_rate"]
        return self._serialize_hyperparameter(self._learning_rate)

    def _new_slot(self, weight, name, start):
        variable = raw_variable(self.add_variable_from_reference(weight, name))
        variable.assign(tf.zeros_like(variable) + start)
        return variable

    def _new_number(self, start, name):
        number = raw_variable(self.add_variable(shape=(), name=name))
        number.assign(start)
        return number

    def _unscaled(self, grads):
        """The gradients without the loss scale, and whether all are finite."""
        if not self.scale_losses:
            return grads, True
        grads = [g / self._loss_scale for g in grads]
        checks = [tf.reduce_all(tf.math.is_finite(g)) for g in grads]
        return grads, tf.reduce_all(tf.stack(checks))

    def _accumulated(self, grads, finite):
        """The mean gradients so far, the new stores, whether to update."""
        if self.accumulation == 1:
            return grads, [[] for _ in grads], finite
        sums = [
            store + tf.where(finite, g, 0.0) / self.accumulation
            for g, (store,) in zip(grads, self._stores, strict=True)
        ]
        calls = raw_variable(self.iterations) + 1
        full = tf.equal(calls % self.accumulation, 0)
        return sums, [[tf.where(full, 0.0, s)] for s in sums], full

    def _clipped(self, grads):
        if not self.clip_norm:
            return grads
        return tf.clip_by_global_norm(grads, self.clip_norm)[0]

    def _statistics(self):
        """What is averaged and not trained, as the mean over the replicas."""
        if not self.average_decay:
            return []
        trained = {id(raw_variable(v)) for v in self._model.trained}
        values = [
            tf.identity(raw_variable(w))
            for w in self._model.averaged
            if id(raw_variable(w)) not in trained
        ]
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync == 1 or not values:
            return values
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, values)

    def _update(self, strategy, grads, stores, statistics, gate, finite):
        """Runs once for all replicas; `update` visits each one's copy."""

        def update(variable, function, *args):
            strategy.extended.update(
                raw_variable(variable), function, args=args, group=False
            )

        done = tf.cast(raw_variable(self.iterations), tf.float32)
        done = tf.floor(done / self.accumulation)
        rate = tf.cast(self.rate(done), tf.float32)
        for i, weight in enumerate(self._model.trained):
            for variable, value in zip(self._stores[i], stores[i], strict=True):
                update(variable, lambda v, new: v.assign(new), value)
            self._update_weight(update, weight, i, grads[i], rate, done, gate)
        self._update_averages(update, statistics, done, gate)
        if self.scale_losses:
            self._update_loss_scale(update, finite)

    def _update_weight(self, update, weight, i, grad, rate, done, gate):
        rule = RULES[self.rule][0]
        decayed = id(raw_variable(weight)) in self._model.decayed

        def step(w, g, rate, done, gate, *slots):
            g = tf.cast(g, w.dtype)
            if decayed:
                g += self.weight_decay * w
            old = [tf.identity(slot) for slot in slots]
            change, new = rule(g, rate, self.momentum, done + 1.0, *old)
            w.assign_sub(_if(gate, change, 0.0))
            for slot, value, before in zip(slots, new, old, strict=True):
                slot.assign(_if(gate, value, before))

        update(weight, step, grad, rate, done, gate, *self._slots[i])

    def _update_averages(self, update, statistics, done, gate):
        done = done + 1.0
        decay = tf.minimum(self.average_decay, (1.0 + done) / (10.0 + done))
        trained = {id(raw_variable(v)) for v in self._model.trained}
        statistics = iter(statistics)

        def move(average, value, decay, gate):
            change = (1.0 - decay) * (average - value)
            average.assign_sub(_if(gate, change, 0.0))

        averaged = self._model.averaged if self._averages else ()
        for average, weight in zip(self._averages, averaged, strict=True):
            value = raw_variable(weight)
            if id(value) not in trained:
                value = next(statistics)
            update(average, move, value, decay, gate)

    def _update_loss_scale(self, update, finite):
        def count(steps, finite):
            steps.assign(tf.where(finite, (steps + 1.0) % _STEPS_TO_GROW, 0.0))

        def change(scale, finite, steps):
            grown = tf.where(tf.equal(steps, 0.0), scale * 2.0, scale)
            scale.assign(tf.where(finite, grown, tf.maximum(scale / 2.0, 1.0)))

        update(self._good_steps, count, finite)
        update(self._loss_scale, change, finite, self._good_steps)


def _if(gate, value, otherwise):
    """`tf.where`, without the operation where the answer is known."""
    return value if gate is True else tf.where(gate, value, otherwise)


def _check_arguments(rule, accumulation, average_decay):
    if rule not in RULES:
        raise ValueError(
            f"`rule` must be one of {', '.join(RULES)}. Received: {rule!r}."
        )
    if accumulation < 1:
        raise ValueError(
            f"`accumulation` must be at least 1. Received: {accumulation}."
        )
    if not 0 <= average_decay < 1:
        raise ValueError(
            f"`average_decay` must lie in [0, 1). Received: {average_decay}."
        )
