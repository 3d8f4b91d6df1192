"""Which cases of a parametrized test `make test` runs.

Of a test over several parameters so many that every value of every parameter
is met. With a marker of their own, `@pytest.mark.representatives(3)`, three
cases, evenly spread.

All others are given the marker `thorough`, for `make test-all`. Under tf_keras
one case of each test runs: what the others are about is met under Keras 3.
With `@pytest.mark.representatives(3, everywhere=True)` tf_keras has as many.

Cases that are `slow` represent each other alone: no quick one is left out for
them.
"""

import collections


def each_value(cases):
    """Chooses cases until every value of every parameter is met.

    Args:
        cases: a set of pairs (argument, value) for each.

    Returns:
        The positions of the chosen cases, first those with most that is new.
    """
    missing = set().union(*cases)
    chosen = []
    while missing:
        gains = [len(missing & case) for case in cases]
        chosen.append(gains.index(max(gains)))
        missing -= cases[chosen[-1]]
    return chosen


def evenly_spread(count, number):
    """Chooses `number` positions of `count`, from the first to the last."""
    if number >= count:
        return [*range(count)]
    steps = max(number - 1, 1)
    return sorted({i * (count - 1) // steps for i in range(number)})


def values(item):
    """The parameters of a case; the cases of a test share their values."""
    return {(name, id(value)) for name, value in item.callspec.params.items()}


def chosen(items, only_one=False):
    """The cases of one test that `make test` runs.

    Args:
        items: all cases.
        only_one: whether one of them is enough.
    """
    marker = items[0].get_closest_marker("representatives")
    if only_one and not (marker and marker.kwargs.get("everywhere")):
        return items[:1]
    if marker:
        return [items[i] for i in evenly_spread(len(items), *marker.args)]
    return [items[i] for i in each_value([*map(values, items)])]


def mark_thorough(items, only_one=False):
    """Gives the cases that `make test` leaves out their marker.

    Args:
        items: all that is collected.
        only_one: see `chosen`; then the others run under Keras 3 alone.
    """
    markers = ("thorough", "once") if only_one else ("thorough",)
    others = (*markers, "once_a_version") if only_one else markers
    tests = collections.defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not any(
            map(item.get_closest_marker, others)
        ):
            is_slow = item.get_closest_marker("slow") is not None
            test = item.path, item.function.__qualname__, is_slow
            tests[test].append(item)
    for cases in tests.values():
        kept = {*chosen(cases, only_one)}
        for item in cases:
            if item not in kept:
                for marker in markers:
                    item.add_marker(marker)
