"""The network for inference: tensors by name to tensors by name."""

import dataclasses
import itertools
import keyword
import re
from collections.abc import Callable
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf.arguments import UserError
from lambdanet_tf.models.graph import graph_of
from lambdanet_tf.serving.classifier import classifier_of
from lambdanet_tf.serving.folding import fold_batch_norm
from lambdanet_tf.serving.folding import grouped_by_parts
from lambdanet_tf.serving.options import ExportOptions

# Kernels and tables from this size on are stored in bfloat16; biases and
# other small weights keep their precision.
_BFLOAT16_ELEMENTS = 256


class Inference:
    """A trained model without anything that only training needs.

    Batch normalization is folded into the layers before it. Call it with a
    tensor for each input, by name; it returns its outputs by name, numbers with
    a fraction in float32. A classifier of images has the input `images`,
    float32 `(batch, height, width, channels)` in [0, 255], and the outputs
    `features` `(batch, units)`, the inputs of the classifier, and `logits`
    `(batch, classes)`. The inputs and outputs of any other model have the names
    of its dictionaries, else those of its `Input`s and of its last layers.

    Args:
        model: a functional `tf.keras.Model`.
        options: of the export; None for the defaults.

    Attributes:
        model: the Keras model.
        classifier: of images: its end, its classes and the preprocessing of
            encoded images; None for any other model.
        options: with the activation of this classifier.
        specs: the `tf.TensorSpec` of each input, by name.
        weights: the variables that inference reads.
        tables: the vocabularies that it looks up.

    Raises:
        ValueError: if the model is not functional, its inputs or outputs have
            no names, or an option does not fit it.

    Examples:
        >>> inference = Inference(models.LambdaResNetSmall())
        >>> outputs = inference(images=tf.zeros([2, 8, 8, 1]))
        >>> outputs["logits"].shape
        TensorShape([2, 10])
    """

    def __init__(
        self, model: tf.keras.Model, options: ExportOptions | None = None
    ):
        models.check_functional(model)
        _check_batch(model)
        options = options or ExportOptions()
        task = options.task or _task(model)
        self.model = model
        if task == "classify":
            # Of the model, not of its folded copy: errors name its layers.
            self.classifier = end = classifier_of(model, options)
            self.options = dataclasses.replace(
                options, task=task, classifier_activation=end.activation
            )
            shape = model.inputs[0].shape
            self.specs = {"images": tf.TensorSpec(shape, tf.float32, "images")}
        else:
            options.require_no_images()
            self.classifier = None
            self.options = dataclasses.replace(options, task=task)
            self.specs = _specs(model)
        with ops.planning_for(options.device):
            self._network = self._folded()
        self.tables = [
            part.lookup_table
            for part in self._network._flatten_layers()
            if hasattr(part, "lookup_table")
        ]
        concrete = tf.function(
            lambda **inputs: self.compute(inputs)
        ).get_concrete_function(**self.specs)
        _check_not_compiled(concrete.graph)
        self.weights = list(concrete.graph.variables)
        if options.weights_dtype == "bfloat16":
            concrete, self.weights = _with_bfloat16_weights(
                concrete, self.specs
            )
        self._infer = concrete
        _check_outputs(self.output_specs)

    def __call__(self, /, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._infer(
            **{name: tf.convert_to_tensor(x) for name, x in inputs.items()}
        )

    def compiled(self) -> Callable[..., dict[str, tf.Tensor]]:
        """Returns the same function, compiled by XLA.

        Returns:
            A function of a tensor for each input, by name, to a dictionary.
        """
        if self.options.weights_dtype == "bfloat16":
            return tf.function(self.__call__, jit_compile=True)
        # Traced anew: a branch is another operation where XLA compiles it.
        return tf.function(
            lambda **inputs: self.compute(inputs), jit_compile=True
        )

    @property
    def compute_dtype(self) -> str:
        """The narrowest type that a layer of the model computes in."""
        found = {part.compute_dtype for part in self.model._flatten_layers()}
        narrow = [name for name in ("bfloat16", "float16") if name in found]
        return narrow[0] if narrow else "float32"

    @property
    def output_specs(self) -> dict[str, tf.TensorSpec]:
        """The `tf.TensorSpec` of each output, by name."""
        return self._infer.structured_outputs

    def compute(
        self, inputs: Mapping[str, tf.Tensor], device: str | None = None
    ) -> dict[str, tf.Tensor]:
        """Computes the same with float32 weights, as a plain function.

        Args:
            inputs: a tensor for each input, of any batch or size.
            device: that the algorithms are planned for; None for the options'.

        Returns:
            The outputs by name, those with a fraction float32.
        """
        # Whoever traces it, and when.
        with (
            ops.planning_for(device or self.options.device),
            grouped_by_parts(self._network),
        ):
            outputs = self._network(
                _in_order(inputs, self.specs), training=False
            )
        return {
            name: tf.cast(x, tf.float32) if x.dtype.is_floating else x
            for name, x in outputs.items()
        }

    def expected_outputs(
        self, inputs: Mapping[str, np.ndarray | tf.Tensor]
    ) -> dict[str, np.ndarray]:
        """Returns what the Keras model computes.

        Args:
            inputs: by name.

        Returns:
            Its outputs by name; of a classifier of images features, logits and
            probabilities.
        """
        model, classifier = self.model, self.classifier
        if classifier is None:
            outputs = {k: model.outputs[i] for k, i in _outputs(model).items()}
            network = tf.keras.Model(model.inputs, outputs)
            found = network.predict(_in_order(inputs, self.specs), verbose=0)
            return {
                name: x.astype(self.output_specs[name].dtype.as_numpy_dtype)
                for name, x in found.items()
            }
        dense = classifier.dense
        network = tf.keras.Model(model.inputs, [dense.input, dense.output])
        images = tf.cast(inputs["images"], tf.float32)
        activation = dense.activation
        dense.activation = tf.keras.activations.linear  # For logits.
        try:
            found = network.predict(images, verbose=0)
        finally:
            dense.activation = activation
        features, logits = (np.asarray(x, np.float32) for x in found)
        return {
            "features": features,
            "logits": logits,
            "probabilities": classifier.probabilities(logits).numpy(),
        }

    def _folded(self):
        """The folded copy: inputs in their order to outputs by name."""
        folded = fold_batch_norm(self.model, self.options.implementation)
        if self.classifier is None:
            names = _outputs(self.model)
            outputs = {name: folded.outputs[i] for name, i in names.items()}
        else:  # Without an activation, be it a layer of its own.
            head = folded.get_layer(self.classifier.dense.name)
            if head is self.classifier.dense:
                raise UserError(
                    f"`model` must have a last layer that `from_config` makes "
                    f"again. Received: {head.name}, a {type(head).__name__}."
                )
            head.activation = tf.keras.activations.linear
            outputs = {"features": head.input, "logits": head.output}
        return tf.keras.Model(folded.inputs, outputs)


def _check_batch(model):
    """Raises a ValueError unless a model takes batches of any size."""
    sizes = {tensor.name: tensor.shape[0] for tensor in model.inputs}
    if any(sizes.values()):
        raise UserError(
            "`model` must take batches of any size. Received: inputs for "
            f"batches of {sizes}. Make them by `tf.keras.Input(shape)`."
        )


def _check_outputs(specs):
    """Raises a ValueError if an output holds texts."""
    if texts := [k for k, x in specs.items() if x.dtype == tf.string]:
        raise UserError(
            "`model` must answer numbers: texts are made of them behind it. "
            f"Received: the outputs {texts} of strings."
        )


def _check_not_compiled(graph):
    """Raises a ValueError if XLA would have to compile a part of a graph."""
    functions = graph.as_graph_def().library.function
    if any(f.attr["_XlaMustCompile"].b for f in functions):
        raise UserError(
            "`model` must run where XLA is switched off, as on a server. "
            "Received: a model of which XLA compiles a part. That is a "
            "function with `jit_compile=True`, or a grouped convolution "
            "inside of a layer."
        )


def _task(model):
    """What an export of a model does, if its options do not say."""
    is_of_images = len(model.inputs) == 1 and len(model.inputs[0].shape) == 4
    return "classify" if is_of_images else "predict"


def _specs(model):
    """The `tf.TensorSpec` of each input, by name, in the model's order."""
    names = {id(tensor): tensor.name for tensor in model.inputs}
    given = graph_of(model).input  # A Sequential of Keras 3 has none itself.
    if isinstance(given, Mapping):
        _check_flat("inputs", given)
        names = {id(tensor): name for name, tensor in given.items()}
    _check_names("inputs", list(names.values()))
    specs = {}
    for tensor in model.inputs:
        name, dtype = names[id(tensor)], tf.as_dtype(tensor.dtype)
        if dtype == tf.string:
            raise UserError(
                "`model` must take numbers: texts become numbers before it. "
                f"Received: the input {name!r} of strings."
            )
        if dtype == tf.bfloat16:  # which NumPy lacks, and Keras casts to
            dtype = tf.float32
        specs[name] = tf.TensorSpec(tensor.shape, dtype, name)
    return specs


def _outputs(model):
    """The place in `model.outputs` of each output, by name."""
    graph = graph_of(model)
    names, given = graph.output_names, graph.output
    if isinstance(given, Mapping):
        _check_flat("outputs", given)
        places = [id(tensor) for tensor in model.outputs]
        return {k: places.index(id(x)) for k, x in given.items()}
    _check_names("outputs", names)
    return {name: place for place, name in enumerate(names)}


def _check_flat(kind, tensors):
    """Raises a ValueError unless a dictionary holds a tensor by each name."""
    if others := [k for k in tensors if not isinstance(k, str)]:
        raise UserError(
            f"`model` must name its {kind} by texts. Received: {others}."
        )
    if nested := [k for k, x in tensors.items() if tf.nest.is_nested(x)]:
        raise UserError(
            f"`model` must have a tensor for each name of its {kind}. "
            f"Received: several at {nested}."
        )


def _check_names(kind, names):
    """Raises a ValueError unless names can be those of a signature."""
    arguments = {*keyword.kwlist, "self"} if kind == "inputs" else set()
    is_name = re.compile(r"[A-Za-z]\w*", re.ASCII).fullmatch
    if (
        len({*names}) < len(names)
        or not all(map(is_name if arguments else str.isidentifier, names))
        or arguments & {*names}
    ):
        also = ", first a letter, and by no word of Python" * bool(arguments)
        raise UserError(
            f"`model` must name its {kind}, each by letters, digits and '_'"
            f"{also}. "
            f"Received: {names}. Name the layers, or make the model of a "
            f"dictionary of {kind}."
        )


def _in_order(inputs, specs):
    """A tensor for a model of one input, else a list in the model's order."""
    tensors = [inputs[name] for name in specs]
    return tensors if len(tensors) > 1 else tensors[0]


def _with_bfloat16_weights(concrete, specs):
    """The same function, reading its large weights from bfloat16 variables.

    Args:
        concrete: the concrete function.
        specs: of its inputs, by name.

    Returns:
        A concrete function, and the variables that it reads.
    """
    graph = concrete.graph.as_graph_def()
    functions = [f.node_def for f in graph.library.function]
    for node in itertools.chain(graph.node, *functions):
        # A branch stays one operation, which XLA compiles, too.
        node.attr.pop("_lower_using_switch_merge", None)
    weights = {id(weight.handle): weight for weight in concrete.graph.variables}
    captured = {
        inner.op.name: outer for outer, inner in concrete.graph.captures
    }
    read_elsewhere = {
        name
        for node in graph.node
        for name in node.input
        if node.op != "ReadVariableOp"
    }
    halved = {
        name: tf.Variable(
            tf.cast(weights.pop(id(handle)), tf.bfloat16), trainable=False
        )
        for name, handle in captured.items()
        if name not in read_elsewhere and _is_large(weights.get(id(handle)))
    }
    for node in graph.node:
        if node.name in halved:  # a tensor in place of a variable
            node.attr["dtype"].type = tf.float32.as_datatype_enum
        elif node.op == "ReadVariableOp" and node.input[0] in halved:
            node.op = "Identity"
            node.attr["T"].CopyFrom(node.attr["dtype"])
            del node.attr["dtype"]
    structure = concrete.structured_outputs
    names = [tensor.name for tensor in concrete.outputs]

    def infer_from_bfloat16(**inputs):
        capture = tf.compat.v1.get_default_graph().capture
        tensors = {
            name: tf.cast(halved[name], tf.float32)
            if name in halved
            else capture(handle)
            for name, handle in captured.items()
        }
        outputs = tf.graph_util.import_graph_def(
            graph, input_map=inputs | tensors, return_elements=names
        )
        return tf.nest.pack_sequence_as(structure, outputs)

    infer = tf.function(infer_from_bfloat16).get_concrete_function(**specs)
    return infer, [*halved.values(), *weights.values()]


def _is_large(weight):
    """Whether a weight is worth storing in bfloat16."""
    return (
        weight is not None
        and weight.dtype == tf.float32
        and weight.shape.rank >= 2
        and weight.shape.num_elements() >= _BFLOAT16_ELEMENTS
    )
