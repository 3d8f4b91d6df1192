"""The compiled steps: several updates in one call, evaluation, prediction."""

import tensorflow as tf

from lambdanet_tf.layers.randomness import random_streams
from lambdanet_tf.training.losses import correct
from lambdanet_tf.training.losses import cross_entropy


def training_step(
    model,
    optimizer,
    strategy,
    batch_size,
    smoothing=0.0,
    seed=0,
    jit_compile=False,
):
    """A function that takes some training steps.

    The loss is the sum over the examples divided by the batch of all replicas,
    so the sum of the replicas' gradients is that of one device. What random
    layers draw is a function of the seed, the step and the replica.

    Args:
        model: `tf.keras.Model` that returns logits.
        optimizer: `RecipeOptimizer`.
        strategy: `tf.distribute.Strategy`.
        batch_size: int. Images of a step, all replicas together.
        smoothing: float. Label smoothing.
        seed: int.
        jit_compile: bool. Whether XLA compiles the step.

    Returns:
        A `tf.function`: iterator of `(images, labels)`, int32 number of steps,
        float32 vote -> a float32 vector: over all images the sums of loss,
        right answers and images; over all processes the sum of the votes.
    """
    step = update_step(model, optimizer, strategy, batch_size, smoothing, seed)
    if jit_compile:
        step = tf.function(step, jit_compile=True)

    @tf.function
    def take(iterator, steps, vote):
        total = tf.zeros([3])
        for _ in tf.range(steps):
            sums = strategy.run(step, args=next(iterator))
            total += strategy.reduce("sum", sums, axis=None)
        votes = strategy.run(lambda: tf.identity(vote))
        votes = strategy.reduce("sum", votes, axis=None)
        return tf.concat([total, [votes]], axis=0)

    return take


def update_step(model, optimizer, strategy, batch_size, smoothing=0.0, seed=0):
    """What one replica computes in a step, with `training_step`'s arguments.

    Returns:
        A callable for `strategy.run`: images, labels -> a float32 vector: over
        the images of the replica the sums of loss, right answers and images.
    """
    variables = model.trainable_variables
    with strategy.scope():
        optimizer.build(variables)

    def step(images, labels):
        streams = replica_seed(seed, optimizer.iterations)
        with tf.GradientTape() as tape, random_streams(streams):
            logits = model(images, training=True)
            losses = cross_entropy(labels, logits, smoothing)
            loss = tf.reduce_sum(losses) / batch_size
            scaled = optimizer.scale_loss(loss)
        grads = tape.gradient(scaled, variables)
        optimizer.apply_gradients(zip(grads, variables, strict=True))
        right = tf.reduce_sum(correct(labels, logits))
        count = tf.cast(tf.shape(logits)[0], tf.float32)
        return tf.stack([loss * batch_size, right, count])

    return step


def replica_seed(seed, step):
    """The seed of everything random in one step of one replica."""
    context = tf.distribute.get_replica_context()
    step = tf.cast(tf.convert_to_tensor(step), tf.int64)
    number = step * context.num_replicas_in_sync + tf.cast(
        context.replica_id_in_sync_group, tf.int64
    )
    fold = tf.random.experimental.stateless_fold_in
    return fold(tf.constant([seed, 0], tf.int64), number)


def evaluation_step(model, strategy):
    """A function that evaluates one batch.

    Args:
        model: `tf.keras.Model` that returns logits.
        strategy: `tf.distribute.Strategy`.

    Returns:
        A `tf.function`: `(images, labels, weights)` -> a float32 vector of the
        weighted sums over all images: loss, right answers, right answers among
        the five likeliest, weights.
    """

    def replica_step(images, labels, weights):
        logits = model(images, training=False)
        columns = [
            cross_entropy(labels, logits),
            correct(labels, logits),
            correct(labels, logits, top=5),
            tf.ones_like(weights),
        ]
        return tf.stack([tf.reduce_sum(c * weights) for c in columns])

    @tf.function
    def evaluate(batch):
        sums = strategy.run(replica_step, args=batch)
        return strategy.reduce("sum", sums, axis=None)

    return evaluate


def prediction_step(model, strategy):
    """A function that gives the probabilities of the classes of one batch.

    Args:
        model: `tf.keras.Model` that returns logits.
        strategy: `tf.distribute.Strategy`.

    Returns:
        A `tf.function`: `(images, labels, weights)` -> probabilities, for each
        replica.
    """

    def replica_step(images, labels, weights):
        logits = model(images, training=False)
        return tf.nn.softmax(tf.cast(logits, tf.float32))

    @tf.function
    def predict(batch):
        return strategy.run(replica_step, args=batch)

    return predict
