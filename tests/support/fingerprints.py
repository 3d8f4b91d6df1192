"""Fingerprints of the sources, which do not change while tests run."""

import functools

from benchmarks import records

_of_files = functools.cache(records.fingerprint)


def fingerprint(code, root=records.ROOT):
    """As `records.fingerprint`; of the repository once a process."""
    of_files = _of_files if root == records.ROOT else _of_files.__wrapped__
    return of_files(tuple(code), root)
