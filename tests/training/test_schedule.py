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
    for step, stairs in ((10, 0), (39, 0), (40, 1), (10 + 7 * 30, 7)):
        assert float(schedule(step)) == pytest.approx(0.1 * 0.99**stairs)


def test_paper_rate_of_batch_4096():
    recipe = Recipe(batch_size=4096, epochs=90, warmup_epochs=5.0)
    schedule = recipe_schedule(recipe, 312)
    assert schedule.peak == pytest.approx(1.6)
    assert schedule.num_steps == 90 * 312
    assert schedule.warmup_steps == 5 * 312
    # A rate can be absolute, and a warm-up ends with the run.
    recipe = Recipe(epochs=2, learning_rate=2.5e-3, base_batch_size=0)
    schedule = recipe_schedule(recipe, 10)
    assert schedule.peak == pytest.approx(2.5e-3)
    assert schedule.warmup_steps == schedule.num_steps == 20


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"`shape` must be .*'linear'"):
        WarmupSchedule(0.1, 10, shape="linear")
    with pytest.raises(ValueError, match="11 of 10 steps"):
        WarmupSchedule(0.1, 10, warmup_steps=11)
