"""Fingerprints of the sources, which do not change while tests run."""

import functools

from benchmarks import records

fingerprint = functools.cache(records.fingerprint)
