"""The fit of a row of `DEVICES` to measured layers."""

import pytest

from benchmarks.layers import device_fit
from lambdanet_tf import ops

CPU = ops.DEVICES["cpu"]
NAMES = ("lambda_first", "query_first", "fourier", "conv2d")


def measured(size, **milliseconds):
    geometry = ops.Geometry.of([ops.same_axis(size, 7)] * 2)
    return device_fit.Measured(
        geometry, ops.Dims(4, 16, 32), False, 8, milliseconds
    )


@pytest.mark.slow
@pytest.mark.parametrize("fastest", ["fourier", "conv2d"])
def test_a_fit_chooses_what_was_fastest(fastest):
    times = dict.fromkeys(NAMES, 3.0) | {fastest: 1.0}
    row = measured(28, **times)
    fitted = device_fit.fit([row], CPU)
    assert row.choice(fitted) == fastest
    assert row.regret(fitted) == 1.0


@pytest.mark.slow
def test_a_fit_to_what_no_row_explains_is_not_worse():
    rows = []
    for size, fastest in zip((7, 14, 28), NAMES, strict=False):
        times = dict.fromkeys(NAMES, 3.0) | {fastest: 1.0}
        rows.append(measured(size, **times))
    fitted = device_fit.fit(rows, CPU)
    assert device_fit.loss(rows, fitted) <= device_fit.loss(rows, CPU)
    for field in device_fit.FITTED:
        change = getattr(fitted, field) / getattr(CPU, field)
        assert 1 / device_fit.FURTHEST <= change <= device_fit.FURTHEST


def test_only_what_was_measured_is_chosen():
    row = measured(28, conv2d=2.0, einsum=1.0)
    assert row.choice(CPU) == "conv2d"
    assert row.regret(CPU) == 2.0  # The fastest need not be a candidate.
