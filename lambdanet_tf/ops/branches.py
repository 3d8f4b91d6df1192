"""A branch that is taken seldom, chosen when a graph runs."""

import tensorflow as tf


def unless(condition, function, outputs, *inputs):
    """Returns outputs, or where a condition is False a function of them.

    The function's gradient computes it again: that of a bare `tf.cond` keeps
    what both branches form, and TensorFlow warns of types that it cannot infer.

    Args:
        condition: scalar boolean.
        function: takes the list of outputs and the inputs; returns a list of
            tensors like the outputs.
        outputs: list of tensors.
        *inputs: tensors.

    Returns:
        A list of tensors.
    """
    count = len(outputs)

    @tf.custom_gradient
    def compute(*tensors):
        def chosen():
            return function(list(tensors[:count]), *tensors[count:])

        def gradient(*upstream):
            def differentiate():
                with tf.GradientTape() as tape:
                    tape.watch(tensors)
                    results = chosen()
                return tape.gradient(
                    results,
                    list(tensors),
                    list(upstream),
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )

            zeros = [tf.zeros_like(x) for x in tensors[count:]]
            passed = [*upstream, *zeros]
            return tf.cond(condition, lambda: passed, differentiate)

        found = tf.cond(condition, lambda: list(tensors[:count]), chosen)
        return found, gradient

    return compute(*outputs, *inputs)
