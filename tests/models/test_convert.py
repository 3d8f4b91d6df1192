"""Files of the safetensors format, also by `python -m lambdanet_tf.convert`."""

import json
import re
import sys

import numpy as np
import pytest

from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.convert import main
from lambdanet_tf.models.timm.safetensors import read_safetensors
from lambdanet_tf.models.timm.safetensors import write_safetensors
from tests.support import timm_golden
from tests.support.timm_golden import TINY

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def row(monkeypatch):
    monkeypatch.setitem(specs.RESNETS, "tiny", TINY)


@pytest.fixture
def theirs(tmp_path):
    """A file of timm's layout, of seven classes."""
    path = tmp_path / "theirs.safetensors"
    write_safetensors(path, timm_golden.state_dict(TINY, classes=7))
    return path


def tiny():
    return models.ResNet(TINY, input_shape=(32, 32, 3), classes=7)


def test_there_and_back_by_the_command(theirs, tmp_path, capsys):
    ours, back = tmp_path / "ours.npz", tmp_path / "back.safetensors"
    assert main(f"from-timm {theirs} {ours} --model tiny".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"Wrote {ours}"
    rows = {line.split()[0]: line.split(None, 2)[1:] for line in lines[2:-1]}
    assert rows.keys() == read_safetensors(theirs).keys()
    layer = "stage4_block1_lambda"
    assert rows["stages.2.0.self_attn.conv_lambda.bias"] == [
        "4",
        f"{layer}/position_bias",
    ]
    assert rows["stages.2.0.self_attn.qkv.weight"] == [
        "20x16x1x1",
        f"{layer}/query/kernel, {layer}/key/kernel, {layer}/value/kernel",
    ]
    assert "counter" in rows["stem.conv1.bn.num_batches_tracked"][1]

    model = tiny()
    models.load_weights(model, ours)
    shown = " ".join(f"{text}," for _, text in rows.values())
    for name in models.named_weights(model):
        assert shown.count(f"{name},") == 1, name

    assert main(f"to-timm {ours} {back} --model tiny".split()) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == lines[:-1]
    assert back.read_bytes() == theirs.read_bytes()


@pytest.mark.slow
def test_what_is_refused_writes_nothing(theirs, tmp_path, capsys):
    weights = tmp_path / "weights.npz"
    models.save_weights(tiny(), weights)
    before = sorted(tmp_path.iterdir())
    new, out = f"{tmp_path}/new.npz", f"{tmp_path}/new.safetensors"
    to_tiny, there = "--model tiny", f"from-timm {theirs}"
    for command, message in (
        (f"from-timm lambda_resnet26 {new}", "one of .*Did you mean"),
        (f"{there} {new}", "--model must be given .*el=None"),
        (f"{there} {out} {to_tiny}", "`destination` must end in"),
        (f"{there} {new} --model Tiny", "--model must.*Did you mean 'tiny'"),
        (
            f'{there} {new} {to_tiny} --model-arguments={{"scope":3}}',
            "and .4, 1, 3, 3, 1. in the model",
        ),
        (f"to-timm {weights} {out} --model LambdaResNet26T", "missing in the"),
    ):
        assert main(command.split()) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("python -m lambdanet_tf.convert: ")
        assert re.search(message, captured.err)
        assert sorted(tmp_path.iterdir()) == before


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def by_hand(tmp_path, header, data=b""):
    """A file of a header of any kind, and bytes behind it."""
    path = tmp_path / "file.safetensors"
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_half_floats(tmp_path):
    header = {
        "half": entry("F16", [2, 1], 0, 4),
        "brain": entry("BF16", [2], 4, 8),
    }
    data = np.array([0.5, 65504], "<f2").tobytes()
    data += bytes([0xC0, 0x3F, 0x80, 0xFF])  # 1.5 and -infinity
    arrays = read_safetensors(by_hand(tmp_path, header, data))
    for name, expected in {
        "half": np.float16([[0.5], [65504]]),
        "brain": np.float32([1.5, -np.inf]),
    }.items():
        np.testing.assert_array_equal(arrays[name], expected, strict=True)


def test_what_is_written_is_read(tmp_path, rng):
    arrays = {
        "b": rng.normal(size=[3, 2, 1]).astype(np.float32),
        "a": np.array(7),
        "strided": rng.normal(size=[4, 5]).astype(np.float32)[::2, ::-1],
    }
    path = tmp_path / "file.safetensors"
    write_safetensors(path, arrays)
    content, back = path.read_bytes(), read_safetensors(path)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array, strict=True)
    with pytest.raises(ValueError, match="a of float16"):
        write_safetensors(path, {"a": np.zeros(3, np.float16)})
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"a": entry("F32", [2], 0, 8)}, bytes(7)),
        ({"a": entry("F64", [1], 0, 8)}, bytes(8)),
        (b"[" * 100_000, b""),
    ],
)
def test_damaged_files(tmp_path, header, data):
    path = by_hand(tmp_path, header, data)
    with pytest.raises(ValueError, match="safetensors|must be F32") as info:
        read_safetensors(path)
    assert str(path) in str(info.value)


@pytest.mark.slow
def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    remedy = r'pip install "lambdanet-tf\[pretrained\]"'
    with pytest.raises(ImportError, match=remedy):
        models.LambdaResNet26T(weights="imagenet")  # Nothing is fetched.
    with pytest.raises(ImportError, match=remedy):
        read_safetensors(tmp_path / "any.safetensors")
