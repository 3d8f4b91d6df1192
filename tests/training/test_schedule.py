"""The learning rate against formulas written out in NumPy."""

import numpy as np
import pytest

from lambdanet_tf.training import Recipe
from lambdanet_tf.training import WarmupSchedule
from lambdanet_tf.training import recipe_schedule

pytestmark = pytest.mark.once


def test_cosine_at_every_step():
    schedule = WarmupSchedule(1.6, num_steps=100, warmup_steps=20)
    for step in range(101):
        expected = 1.6 * step / 20
        if step >= 20:
            expected = 0.8 * (1 + np.cos(np.pi * (step - 20) / 80))
        assert float(schedule(step)) == pytest.approx(expected, abs=1e-6)
    assert float(schedule(250)) == pytest.approx(0.0, abs=1e-6)


def test_exponential_decays_in_stairs():
    schedule = WarmupSchedule(
        0.1, 1000, warmup_steps=10, shape="exponential", decay=0.99, every=30
    )
    assert float(schedule(10)) == pytest.approx(0.1)
    assert float(schedule(39)) == pytest.approx(0.1)
    assert float(schedule(40)) == pytest.approx(0.1 * 0.99)
    assert float(schedule(10 + 7 * 30)) == pytest.approx(0.1 * 0.99**7)


def test_constant_after_the_warmup():
    schedule = WarmupSchedule(0.3, 50, warmup_steps=5, shape="constant")
    assert float(schedule(2)) == pytest.approx(0.3 * 2 / 5)
    assert float(schedule(5)) == pytest.approx(0.3)
    assert float(schedule(50)) == pytest.approx(0.3)
    # Without a warm-up the first rate is the peak.
    assert float(WarmupSchedule(0.3, 50)(0)) == pytest.approx(0.3)


def test_paper_rate_of_batch_4096():
    schedule = recipe_schedule(Recipe(batch_size=4096), 10)
    assert schedule.peak == pytest.approx(1.6)
    # A rate can be absolute.
    recipe = Recipe(batch_size=128, learning_rate=2.5e-3, base_batch_size=0)
    assert recipe_schedule(recipe, 10).peak == pytest.approx(2.5e-3)


def test_recipe_epochs_become_steps():
    schedule = recipe_schedule(Recipe(epochs=90, warmup_epochs=5.0), 312)
    assert schedule.num_steps == 90 * 312
    assert schedule.warmup_steps == 5 * 312


def test_a_warmup_longer_than_the_run_only_rises():
    schedule = recipe_schedule(Recipe(epochs=2, warmup_epochs=5.0), 10)
    rates = [float(schedule(step)) for step in range(20)]
    assert rates == sorted(rates)
    assert schedule.warmup_steps == 20


def test_config_round_trip():
    schedule = WarmupSchedule(1.6, 100, 20, "exponential", 0.9, 7)
    again = WarmupSchedule.from_config(schedule.get_config())
    assert again.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": "linear"}, r"`shape` must be .*'linear'"),
        ({"warmup_steps": 11}, "11 of 10 steps"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupSchedule(0.1, 10, **arguments)
