from lambdanet_tf.streaming.generation import generate as generate
from lambdanet_tf.streaming.generation import tokens as tokens
from lambdanet_tf.streaming.saved_model import export as export
from lambdanet_tf.streaming.stream import initial_state as initial_state
from lambdanet_tf.streaming.stream import state_spec as state_spec
from lambdanet_tf.streaming.stream import step as step
