"""Fingerprints of the sources, which do not change while tests run."""

import functools

from benchmarks import records

of_files = records.fingerprint
of_sources = functools.cache(of_files)


def fingerprint(code, root=records.ROOT):
    """As `records.fingerprint`; of the repository once a process."""
    if root == records.ROOT:
        return of_sources(tuple(code))
    return of_files(code, root)
