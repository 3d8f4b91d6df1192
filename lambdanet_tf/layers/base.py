"""Base layers: their arguments, configurations and sublayers."""

import json

import tensorflow as tf

from lambdanet_tf.layers.argument import KerasArguments
from lambdanet_tf.layers.argument import arguments_of
from lambdanet_tf.layers.argument import constructor
from lambdanet_tf.layers.argument import declare
from lambdanet_tf.layers.calls import CheckedCall
from lambdanet_tf.layers.calls import refuse_argument


class BaseLayer(CheckedCall):
    """A Keras layer whose sublayers follow it, with clear errors.

    Arguments are declared in the body of a class, see `argument`. Sublayers
    are attributes. They are frozen with the layer, whenever it was
    frozen, and compute in its precision. What was set for one of them alone
    stands in the configuration.

    Args:
        **kwargs: of any Keras layer; and `sublayers`, None or by attribute what
            is set for a sublayer alone, as in the configuration: "trainable",
            "dtype".
    """

    def __init__(self, **kwargs):
        declared = arguments_of(type(self))
        given = {name: kwargs.pop(name) for name in declared if name in kwargs}
        sublayers = kwargs.pop("sublayers", None)
        for name in kwargs:
            if name not in KerasArguments.__annotations__:
                refuse_argument(type(self), name)
        super().__init__(**kwargs)
        # As text: a dictionary would become a part of saved files.
        self._given_settings = json.dumps(sublayers or {})
        self._given_trainable = self.trainable
        for name, argument in declared.items():
            value = given.get(name, argument.default)
            setattr(self, name, argument.checked(value))
        self.__post_init__()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        declare(cls)
        if "__init__" not in vars(cls):
            cls.__init__ = constructor(cls, BaseLayer.__init__)

    def __post_init__(self):
        """Checks arguments against each other, and sets what follows."""

    @property
    def dtype_policy(self):
        return super().dtype_policy

    @dtype_policy.setter
    def dtype_policy(self, policy):
        tf.keras.layers.Layer.dtype_policy.__set__(self, policy)
        for layer in self._sublayers().values():
            layer.dtype_policy = policy

    def _sublayers(self):
        """The sublayers that exist, by attribute."""
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, tf.keras.layers.Layer)
        }

    def _settings(self):
        """What is set for sublayers alone, before they are made."""
        settings = json.loads(self._given_settings)
        if self.trainable != self._given_trainable:  # since set for all
            for setting in settings.values():
                setting.pop("trainable", None)
        return settings

    def _of_sublayer(self, name):
        """The arguments that a sublayer gets from this layer."""
        ours = {"trainable": self.trainable, "dtype": self.dtype_policy}
        return {"name": name, **ours, **self._settings().get(name, {})}

    def _build_sublayer(self, layer, shape):
        with tf.name_scope(layer.name):  # keeps tf_keras' names apart
            layer.build(shape)

    def get_config(self):
        config = super().get_config()
        for name, argument in arguments_of(type(self)).items():
            config[name] = argument.serialized(getattr(self, name))
        settings = {} if self.built else self._settings()
        for name, layer in self._sublayers().items():
            settings[name] = {}
            if layer.trainable != self.trainable:
                settings[name]["trainable"] = layer.trainable
            if layer.dtype_policy.name != self.dtype_policy.name:
                settings[name]["dtype"] = layer.get_config()["dtype"]
        settings = {name: one for name, one in settings.items() if one}
        if settings:
            config["sublayers"] = settings
        return config
