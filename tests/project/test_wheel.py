"""What is released: the package with its license and types, and its version."""

import pathlib
import zipfile

import pytest

import lambdanet_tf

buildapi = pytest.importorskip("flit_core.buildapi")

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "lambdanet_tf"


@pytest.mark.skipif(not PACKAGE.is_dir(), reason="only in a checkout")
def test_the_wheel_has_the_package_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = tmp_path / buildapi.build_wheel(str(tmp_path))
    assert path.stat().st_size <= 3_000_000
    names = {*zipfile.ZipFile(path).namelist()}
    (information,) = {name.split("/")[0] for name in names} - {PACKAGE.name}
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]
    expected = {x.relative_to(ROOT).as_posix() for x in files}
    expected |= {"lambdanet_tf/py.typed", f"{information}/licenses/LICENSE"}
    assert expected <= names
    assert not [name for name in names if "test" in name.lower()]


def test_the_version_is_the_same_everywhere():
    version = lambdanet_tf.__version__
    for page, form in (
        ("CITATION.cff", f"version: {version}\n"),
        ("CHANGELOG.md", f"## {version} ("),
        ("README.md", f"**Status**: {version},"),
        ("docs/migrating.md", f"| here, {version} |"),
    ):
        assert form in (ROOT / page).read_text(encoding="utf-8"), page
