"""Records: appended, never rewritten, with where they come from."""

import argparse
import json

import pytest

from benchmarks import records

pytestmark = pytest.mark.once


@pytest.fixture
def recorder(tmp_path):
    options = argparse.Namespace(results=tmp_path, again=False, only="")
    return records.Recorder("layers", options)


def test_a_record_says_where_it_comes_from(recorder, tmp_path):
    recorder.append({"layer": "a"}, seconds=[1 / 3], plan="x")
    (record,) = records.read("layers", tmp_path)
    assert record["case"] == {"layer": "a"}
    assert record["seconds"] == [0.333333333]
    assert record["plan"] == "x"
    assert {"date", "threads", "processor", "commit"} <= record.keys()
    assert "tensorflow" in record["versions"]
    assert record["code"] == records.fingerprint(
        ["lambdanet_tf/ops", "lambdanet_tf/layers"]
    )


def test_records_are_appended_and_the_last_of_a_case_counts(recorder, tmp_path):
    for value in (1, 2):
        recorder.append({"layer": "a", "batch": 1}, value=value)
        recorder.append({"layer": "b"}, value=value)
        first = (tmp_path / "layers.jsonl").read_text()
    recorder.append({"batch": 1, "layer": "a"}, value=3)
    text = (tmp_path / "layers.jsonl").read_text()
    assert text.startswith(first)
    assert len(records.read("layers", tmp_path)) == 5
    latest = records.latest("layers", tmp_path)
    assert [row["value"] for row in latest] == [3, 2]


def test_what_is_known_is_not_measured_again(recorder, tmp_path):
    recorder.append({"layer": "a"}, value=1)
    assert recorder.known({"layer": "a"})
    assert not recorder.known({"layer": "b"})
    path = tmp_path / "layers.jsonl"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "code": "earlier"}) + "\n")
    assert not recorder.known({"layer": "a"})


def test_a_fingerprint_is_that_of_statements(tmp_path):
    file = tmp_path / "a.py"
    file.write_text('"""One."""\n\nx = 1  # here\n# there\n')
    first = records.fingerprint(["."], tmp_path)
    file.write_text('"""Two\n\nlines."""\nx = 1  # here\n')
    assert records.fingerprint(["."], tmp_path) == first
    file.write_text("x = 2  # here\n")
    assert records.fingerprint(["."], tmp_path) != first
