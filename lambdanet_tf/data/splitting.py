"""Dividing labelled examples into parts, the same way every time."""

import numpy as np

SPLIT_SEED = 2102
TEST_SHARE = 0.2


def three_parts(labels, holdout, test_share=TEST_SHARE):
    """Indices of the training, validation and test examples.

    Each class gives the same share to each part. The parts depend on
    `SPLIT_SEED` alone, not on the seed of a run.

    Args:
        labels: array of class indices.
        holdout: float. Share of what is not test that becomes validation.
        test_share: float. Share of all that becomes test.

    Returns:
        Three sorted arrays of indices.
    """
    generator = np.random.default_rng(SPLIT_SEED)
    rest, test = stratified(labels, test_share, generator)
    train, validation = stratified(labels[rest], holdout, generator)
    return rest[train], rest[validation], test


def stratified(labels, share, generator):
    """Divides examples so that each class gives the same share.

    Args:
        labels: array of class indices.
        share: float. What part of each class goes into the second part,
            rounded to whole examples.
        generator: `np.random.Generator`.

    Returns:
        Two sorted arrays of indices that together are all of them.
    """
    second = [
        generator.permutation(members)[: round(share * len(members))]
        for members in (
            np.flatnonzero(labels == label) for label in np.unique(labels)
        )
    ]
    second = np.sort(np.concatenate(second))
    first = np.setdiff1d(np.arange(len(labels)), second)
    return first, second
