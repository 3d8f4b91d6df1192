"""Examples around the package; not part of it."""
