"""Seeded faults: small wrong changes that the tests must find.

    python -m tests.faults              # all of them: half an hour
    python -m tests.faults NAME ...     # these alone
    python -m tests.faults --write      # and write the table of README.md

Each is applied in a copy of the tree, in which the tests of its room run as
`make test` runs them, up to the first that fails.
"""
