"""What is shipped: the package with its license and types, and nothing else."""

import pathlib
import re
import tarfile
import zipfile

import pytest

buildapi = pytest.importorskip("flit_core.buildapi")

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def in_checkout(monkeypatch):
    if not (ROOT / "lambdanet_tf/__init__.py").is_file():
        pytest.skip("only in a checkout")
    monkeypatch.chdir(ROOT)


def test_the_wheel_has_the_package_alone(in_checkout, tmp_path):
    path = tmp_path / buildapi.build_wheel(str(tmp_path))
    assert path.stat().st_size <= 1_000_000
    names = zipfile.ZipFile(path).namelist()
    folders = {name.split("/")[0] for name in names}
    (information,) = folders - {"lambdanet_tf"}
    assert information.endswith(".dist-info")
    assert f"{information}/licenses/LICENSE" in names
    assert "lambdanet_tf/py.typed" in names
    files = [
        *ROOT.glob("lambdanet_tf/**/*.py*"),
        ROOT / "lambdanet_tf/py.typed",
    ]
    shipped = {name for name in names if name.startswith("lambdanet_tf/")}
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if "__pycache__" not in path.parts
    }
    assert sources <= shipped
    assert not [name for name in names if "test" in name.lower()]


def test_the_sdist_has_what_the_wheel_is_made_of(in_checkout, tmp_path):
    path = tmp_path / buildapi.build_sdist(str(tmp_path))
    assert path.stat().st_size <= 1_000_000
    with tarfile.open(path) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames()]
    tops = {name.split("/")[0] for name in names}
    assert tops == {
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "lambdanet_tf",
        "pyproject.toml",
    }


def test_the_version_is_the_same_everywhere():
    sources = (ROOT / "lambdanet_tf/__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'__version__ = "(.+)"', sources)
    for page, form in (
        ("CITATION.cff", f"version: {version}\n"),
        ("CHANGELOG.md", f"## {version} ("),
        ("README.md", f"**Status**: {version},"),
        ("docs/migrating.md", f"| here, {version} |"),
    ):
        assert form in (ROOT / page).read_text(encoding="utf-8"), page
