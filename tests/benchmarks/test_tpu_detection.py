"""The step of the Model Garden's detector, as the TPU's compiler takes it."""

import numpy as np
import pytest


@pytest.mark.garden
@pytest.mark.filterwarnings("ignore")  # The Model Garden's own.
@pytest.mark.slow
def test_the_step_of_a_detector_is_lowered_for_the_compiler(tmp_path):
    pytest.importorskip("lambdanet_tf.garden", exc_type=ImportError)
    garden_tasks = pytest.importorskip("tests.support.garden_tasks")
    from benchmarks.tpu import detection  # noqa: PLC0415

    records = tmp_path / "scenes.tfrecord"
    garden_tasks.write_scenes(records, np.random.default_rng(0), number=1)
    text, facts = detection.lower_step(garden_tasks.detector(records))
    size = garden_tasks.SIZE
    assert facts["parameters"] > 0
    assert f"tensor<1x{size}x{size}x3xf32>" in text
    assert "tensor<?" not in text
