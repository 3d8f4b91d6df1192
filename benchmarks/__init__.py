"""Measurements: scripts that append records, and what makes pages of them."""

import os

# Before TensorFlow, which itself uses oneDNN on newer processors only.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
