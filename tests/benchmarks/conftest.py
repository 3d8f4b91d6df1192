"""What the sources are is read once, not for every record."""

import pytest

from benchmarks import records
from tests.support import fingerprints


@pytest.fixture(autouse=True)
def each_fingerprint_once(monkeypatch):
    monkeypatch.setattr(records, "fingerprint", fingerprints.fingerprint)
