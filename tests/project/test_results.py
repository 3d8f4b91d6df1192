"""The results: records, the pages made of them, the commands that make them."""

import importlib.util
import re

import pytest

from benchmarks import records
from benchmarks import render
from tests.support import fingerprints

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        not (records.ROOT / "lambdanet_tf").is_dir(), reason="no sources"
    ),
]
TOPICS = records.topics()


def test_pages_are_what_their_records_give(capsys, monkeypatch):
    monkeypatch.setattr(records, "fingerprint", fingerprints.fingerprint)
    assert render.main(["--check"]) == 0, capsys.readouterr().out


def test_every_file_of_records_has_a_topic():
    files = {path.stem for path in records.RESULTS.glob("*.jsonl")}
    assert files <= TOPICS.keys()


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_has_commands_and_code_and_its_records_an_origin(name):
    for path in TOPICS[name].code:
        assert (records.ROOT / path).exists()
    for command in TOPICS[name].commands:
        module = re.match(r"(?:\w+=\w+ )?python -m (\S+)", command)[1]
        assert importlib.util.find_spec(module), module
    for record in records.read(name):
        fields = {"case", "processor", "threads", "versions", "commit"}
        assert fields | {"date", "code"} <= record.keys()


def test_the_figures_of_the_readme_are_those_of_the_claims():
    """What README says of speed stands in the table that records make."""
    readme = (records.ROOT / "README.md").read_text("utf-8")
    claims = (records.ROOT / "docs/claims.md").read_text("utf-8")
    table = claims.partition("<!-- speed:begin -->")[2]
    answers = re.findall(r"\| Is a \w+ fast\? \| (.*) \|", readme)
    figures = re.findall(r"\d+\.\d\d", " ".join(answers))
    assert len(figures) >= 4
    for figure in figures:
        assert f" {figure} times" in table, figure
