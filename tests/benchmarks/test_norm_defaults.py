"""The comparison of defaults of moving statistics."""

import pytest

from benchmarks import norm_defaults

pytestmark = pytest.mark.once


def test_averages_are_those_of_the_layer(monkeypatch):
    """The candidate 0.9 validates as the layer with a momentum of 0.9 does."""
    task = norm_defaults.TASKS["README's cell"]
    data = task.load()
    network = norm_defaults.Network(task)
    row = network.train(data, 32, seed=0, short=True)[-1]
    monkeypatch.setattr(norm_defaults, "norms", lambda model: iter(()))
    plain = norm_defaults.Network(task)
    expected = plain.train(data, 32, seed=0, short=True)[-1]
    assert row["0.9"] == expected["0.9"]
    assert row["training"] == expected["training"]
    assert row["0.9"] != row["exact"]


def test_the_table_without_a_run_leaves_the_page(tmp_path, monkeypatch):
    page = tmp_path / "layers.md"
    page.write_text("<!-- norm:begin -->\n| kept |\n<!-- norm:end -->")
    arguments = ["norm_defaults", "--write", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    norm_defaults.main()
    assert "| kept |" in page.read_text()
