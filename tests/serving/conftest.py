"""Verifications share a process; a real one each is where a test asks."""

import pytest
import tensorflow as tf

from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import verify
from tests.serving.standalone_process import StandaloneProcess


@pytest.fixture(scope="session")
def session(small_export):
    """The export as TF Serving loads it."""
    return standalone.Session(tf, small_export)


@pytest.fixture(scope="session")
def standalone_process():
    process = StandaloneProcess()
    yield process
    process.end()


@pytest.fixture(autouse=True)
def one_process_for_all(standalone_process, monkeypatch):
    monkeypatch.setattr(verify, "run_standalone", standalone_process.run)
