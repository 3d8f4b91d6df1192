"""Times of two versions of the package, in turns."""

import subprocess

import pytest

from benchmarks import before_after

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        not (before_after.ROOT / ".git").exists(), reason="no checkout of git"
    ),
]


def test_a_version_is_timed_compared_with_itself(capsys):
    case = "14x14 d=64 scope 5 k=32"
    before_after.main(["--before", "HEAD", "--cases", case, "--turns", "2"])
    head, line = capsys.readouterr().out.splitlines()
    assert head == "case | forward, after/before | training, after/before"
    name, *ratios = line.split(" | ")
    assert name == case
    for ratio in ratios:
        low, high = ratio.partition("(")[2].rstrip(")").split(" to ")
        assert 0 < float(low) <= float(ratio.split()[0]) <= float(high)


def test_each_version_is_that_of_its_folder(tmp_path):
    before_after.extract("HEAD", tmp_path)
    assert (tmp_path / "lambdanet_tf/ops/__init__.py").exists()
    layers = tmp_path / "lambdanet_tf/layers/__init__.py"
    layers.write_text("raise SystemExit")
    with (
        before_after.Version(tmp_path) as version,
        pytest.raises(RuntimeError, match="ended in '7x7"),
    ):
        version.seconds("7x7 d=512 global", "forward")


def test_an_unknown_commit_is_an_error(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        before_after.extract("no such commit", tmp_path)
