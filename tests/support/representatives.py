"""Which cases of a parametrized test `make test` runs.

So many that every value of every parameter is met; with the marker
`@pytest.mark.representatives(3)` three, evenly spread. The others are given the
marker `thorough`. Under tf_keras one case of each test runs: what the others
are about is met under Keras 3. With `representatives(3, everywhere=True)`
tf_keras has as many. No quick case is left out for one that is `slow`.
"""

import collections


def each_value(cases):
    """Positions of cases, sets of values, until every value is met.

    First those with most that is new.
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
    number = min(number, count)
    return [i * (count - 1) // max(number - 1, 1) for i in range(number)]


def values(item):
    """The parameters of a case; the cases of a test share their values."""
    return {(name, id(value)) for name, value in item.callspec.params.items()}


def chosen(items, only_one=False):
    """Of all cases of a test those that `make test` runs."""
    marker = items[0].get_closest_marker("representatives")
    if only_one and not (marker and marker.kwargs.get("everywhere")):
        return items[:1]
    if marker:
        return [items[i] for i in evenly_spread(len(items), *marker.args)]
    return [items[i] for i in each_value([*map(values, items)])]


def mark_thorough(items, only_one=False):
    """Gives the cases that `make test` leaves out their marker.

    Where one of a test is enough, the others run under Keras 3 alone.
    """
    markers = ("thorough", "once") if only_one else ("thorough",)
    others = (*markers, "once_a_version") if only_one else markers
    tests = collections.defaultdict(list)
    for item in items:
        is_marked = any(map(item.get_closest_marker, others))
        if hasattr(item, "callspec") and not is_marked:
            is_slow = item.get_closest_marker("slow") is not None
            test = item.path, item.function.__qualname__, is_slow
            tests[test].append(item)
    for cases in tests.values():
        for item in {*cases} - {*chosen(cases, only_one)}:
            for marker in markers:
                item.add_marker(marker)
