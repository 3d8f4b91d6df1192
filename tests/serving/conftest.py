"""Verifications run in this process; in one of their own where a test asks."""

import pytest
import tensorflow as tf

from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import verify


@pytest.fixture(scope="session")
def session(small_export):
    """The export as TF Serving loads it."""
    return standalone.Session(tf, small_export)


@pytest.fixture(autouse=True)
def no_process_each(monkeypatch):
    def run(folder, calls):
        session = standalone.Session(tf, folder)
        return [session.run(*call) for call in calls]

    monkeypatch.setattr(verify, "run_standalone", run)
