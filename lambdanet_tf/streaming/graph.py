"""The graph of a functional model: its calls, in order.

Read from the model's configuration, which is public and, as the format of
files, stays. What the Kerases write there differs: Keras 3 marks tensors, and
passes masks as arguments; tf_keras lists them by name.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lambdanet_tf.environment import KERAS_3


@dataclasses.dataclass(frozen=True)
class Value:
    """The output of a call, by the name of the layer.

    Attributes:
        layer: its name.
        call: which call of the layer, from 0.
    """

    layer: str
    call: int


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a layer, or of an operation of Keras 3.

    Attributes:
        layer: what is called.
        args: nested lists of `Value`s and constants.
        kwargs: likewise, by name.
        value: what it computes.
    """

    layer: Any
    args: list
    kwargs: dict[str, Any]
    value: Value

    @property
    def first(self) -> Any:
        """The first value that it is given; None if there is none."""
        return next(_values((self.args, self.kwargs)), None)

    @property
    def inputs(self) -> list[Value]:
        """The values that it is given, but for masks."""
        named = [x for name, x in self.kwargs.items() if name != "mask"]
        return list(_values((self.args, named)))

    @property
    def constants(self) -> list:
        """What else is among its arguments; arrays as Keras describes them."""
        arguments = [*self.args, *self.kwargs.values()]
        lists = [x for x in arguments if isinstance(x, list)]
        alone = [x for x in arguments if not isinstance(x, list)]
        leaves = [*alone, *itertools.chain(*lists)]
        return [x for x in leaves if not isinstance(x, Value)]


@dataclasses.dataclass(frozen=True)
class Graph:
    """A model of one input and one output.

    Attributes:
        input: the tensor of Keras that it was built on.
        calls: each after those that it needs.
        start: the input as a `Value`.
        end: the output.
    """

    input: Any
    calls: list[Call]
    start: Value
    end: Value


def graph_of(model: tf.keras.Model) -> Graph:
    """Reads the graph of a functional or Sequential model.

    Raises:
        ValueError: if the model has several inputs or outputs.
    """
    for kind, tensors in (("input", model.inputs), ("output", model.outputs)):
        if len(tensors) != 1:
            raise ValueError(
                f"Model {model.name!r} cannot stream: it has {len(tensors)} "
                f"{kind}s. A stream has one: make a `tf.keras.Model` of it."
            )
    # A subclass, or a Sequential, may have a configuration of its own.
    plain = tf.keras.Model(model.inputs, model.outputs, name=model.name)
    layers = {x.name: x for x in getattr(plain, "operations", plain.layers)}
    config = plain.get_config()
    read = _call_of_keras_3 if KERAS_3 else _call_of_tf_keras
    calls = [
        Call(layers[one["name"]], *read(node), Value(one["name"], index))
        for one in config["layers"]
        for index, node in enumerate(one["inbound_nodes"])
    ]
    start, end = (_ends(config[name]) for name in _ENDS)
    calls, end = _numbered_from_0(calls, end)
    return Graph(model.inputs[0], list(_ordered(calls, start)), start, end)


_ENDS = ("input_layers", "output_layers")


def _ends(tensors):
    """The `Value` of the only input or output."""
    while not isinstance(tensors[0], str):
        (tensors,) = tensors
    return Value(*tensors[:2])


def _call_of_keras_3(node):
    """Arguments by position and by name."""
    return _with_values(node["args"]), _with_values(node["kwargs"])


def _with_values(x) -> Any:
    """Nested arguments, with a `Value` for each tensor."""
    if isinstance(x, list | tuple):
        return [_with_values(each) for each in x]
    if not isinstance(x, dict):
        return x
    if x.get("class_name") == "__keras_tensor__":
        return Value(*x["config"]["keras_history"][:2])
    return {name: _with_values(each) for name, each in x.items()}


def _call_of_tf_keras(node):
    """Arguments by position and by name.

    One tensor is `[layer, call, output, kwargs]`, several are a list of these,
    and one may also be that list alone. A constant has the call -1.
    """
    if not isinstance(node[0], str) and len(node) == 1:
        (node,) = node
    several = not isinstance(node[0], str)
    entries = node if several else [node]
    first = [Value(*one[:2]) if one[1] != -1 else one[2] for one in entries]
    kwargs = {
        name: Value(*x[:2]) if _is_tensor_of_tf_keras(x) else x
        for name, x in entries[0][3].items()
    }
    return [first if several else first[0]], kwargs


def _is_tensor_of_tf_keras(x):
    return isinstance(x, list) and len(x) == 3 and isinstance(x[0], str)


def _values(x) -> Iterator[Value]:
    """The values among nested arguments."""
    if isinstance(x, Value):
        yield x
    elif isinstance(x, dict):
        yield from _values(list(x.values()))
    elif isinstance(x, list | tuple):
        for each in x:
            yield from _values(each)


def replaced(x: Any, values: dict) -> Any:
    """Returns nested arguments with what `values` has in place of `Value`s."""
    if isinstance(x, Value):
        return values[x]
    if isinstance(x, dict):
        return {name: replaced(each, values) for name, each in x.items()}
    if isinstance(x, list | tuple):
        return [replaced(each, values) for each in x]
    return x


def _numbered_from_0(calls, end):
    """The same calls and end, whose values count the calls of this graph.

    tf_keras counts those of nested models from 1.
    """
    used = [
        end,
        *itertools.chain(*(_values((c.args, c.kwargs)) for c in calls)),
    ]
    last = {}
    for value in used:
        last[value.layer] = max(value.call, last.get(value.layer, 0))
    counts = {call.value.layer: call.value.call for call in calls}
    renamed = {
        value: Value(
            value.layer,
            value.call - last[value.layer] + counts.get(value.layer, 0),
        )
        for value in used
    }
    calls = [
        dataclasses.replace(
            call,
            args=replaced(call.args, renamed),
            kwargs=replaced(call.kwargs, renamed),
        )
        for call in calls
    ]
    return calls, renamed[end]


def _ordered(calls, start) -> Iterator[Call]:
    """The calls, each after those that it needs."""
    known, waiting = {start}, calls
    while waiting:
        later = []
        for call in waiting:
            if known.issuperset(_values((call.args, call.kwargs))):
                known.add(call.value)
                yield call
            else:
                later.append(call)
        waiting = later
