"""The benchmark of training: that it runs and appends."""

import pytest

from benchmarks import records
from benchmarks.training import speed

pytestmark = pytest.mark.once


def test_figures_of_training_are_appended(tmp_path, monkeypatch):
    def instead(function, folder, case, seconds, cores):
        if case["part"] == "loop":
            names = ("held", "fed", "loop")
            return {"seconds": {name: [1.0, 2.0] for name in names}}
        return {"images_per_second": 100.0 * cores}

    monkeypatch.setattr(speed, "write_files", lambda folder: None)
    monkeypatch.setattr(speed.timing, "in_child", instead)
    for _ in range(2):  # what is known is not measured again
        speed.main(["--results", str(tmp_path)])
    found = records.read("training", tmp_path)
    assert len(found) == len(list(speed.cases()))


@pytest.mark.slow
def test_a_pipeline_is_timed(tmp_path):
    speed.image_files.write_arrays(str(tmp_path / "small.npz"), 128, 32, 32)
    name = "arrays in memory, 32 px, shift and flip"
    assert speed.pipeline(tmp_path, name, 0.0) > 0
