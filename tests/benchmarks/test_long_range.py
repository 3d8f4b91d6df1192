"""The generated tasks: that each answer follows from its input."""

import itertools

import numpy as np
import pytest

from benchmarks.studies import long_range

pytestmark = pytest.mark.once
COUNT, LENGTH = 40, 64


def test_copies_are_of_the_first_symbols(rng):
    inputs, targets = long_range.copying(rng, COUNT, LENGTH)
    np.testing.assert_array_equal(inputs[:, : targets.shape[1]], targets)
    assert set(np.unique(targets)) == set(range(1, 9))
    assert np.count_nonzero(inputs) == COUNT * (targets.shape[1] + 1)


def test_sums_are_of_one_number_in_each_half(rng):
    inputs, targets = long_range.adding(rng, COUNT, LENGTH)
    for sequence, (target,) in zip(inputs, targets, strict=True):
        (first, second) = np.flatnonzero(sequence[:, 1])
        assert first < LENGTH // 2 <= second
        assert sequence[first, 0] + sequence[second, 0] == target


def test_every_key_is_asked_for_once(rng):
    inputs, targets = long_range.recall(rng, COUNT, LENGTH, pairs := 8)
    for sequence, answers in zip(inputs, targets, strict=True):
        pair = dict(sequence[: 2 * pairs].reshape(pairs, 2))
        asked = answers != long_range.UNASKED
        assert sorted(sequence[asked]) == sorted(pair)
        assert [pair[key] for key in sequence[asked]] == list(answers[asked])


@pytest.mark.parametrize(("size", "length"), long_range.PATHS)
def test_a_path_joins_the_dots_or_does_not(size, length, rng):
    images, labels = long_range.pathfinder(rng, COUNT, size, length)
    assert 0 < labels.sum() < COUNT
    for image, label in zip(
        np.pad(images[..., 0], 1)[1:-1], labels, strict=True
    ):
        dots = {*zip(*np.nonzero(image == 2), strict=True)}
        waiting, reached = [next(iter(dots))], set()
        while waiting:
            y, x = waiting.pop()
            if image[y, x] and (y, x) not in reached:
                reached.add((y, x))
                waiting += itertools.product(
                    (y - 1, y, y + 1), (x - 1, x, x + 1)
                )
        assert (dots <= reached) == label
