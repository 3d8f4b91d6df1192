"""Streaming: whole models called piece by piece, and text that they write."""

from lambdanet_tf.streaming.generation import generate
from lambdanet_tf.streaming.generation import tokens
from lambdanet_tf.streaming.saved_model import export
from lambdanet_tf.streaming.stream import initial_state
from lambdanet_tf.streaming.stream import state_spec
from lambdanet_tf.streaming.stream import step

__all__ = [
    "export",
    "generate",
    "initial_state",
    "state_spec",
    "step",
    "tokens",
]
