"""Measurements: scripts that append records, and what makes pages of them."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow
