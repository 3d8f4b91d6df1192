"""Files of the safetensors format, also by `python -m lambdanet_tf.convert`."""

import json
import re
import runpy
import sys

import numpy as np
import pytest

from lambdanet_tf import convert
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.convert import main
from lambdanet_tf.models.pretrained import load_initial
from lambdanet_tf.models.timm.safetensors import read_safetensors
from lambdanet_tf.models.timm.safetensors import write_safetensors
from tests.support import networks
from tests.support import timm_golden
from tests.support.timm_golden import TINY

pytestmark = pytest.mark.once

CHANGES = {"scope": None, "use_position_bias": False}


@pytest.fixture(autouse=True)
def row(monkeypatch):
    monkeypatch.setitem(specs.RESNETS, "tiny", TINY)


@pytest.fixture
def theirs(tmp_path):
    """A file of timm's layout, of seven classes."""
    path = tmp_path / "theirs.safetensors"
    write_safetensors(path, timm_golden.state_dict(TINY, classes=7))
    return path


def tiny(input_shape=(32, 32, 3), **changes):
    return models.ResNet(TINY, input_shape=input_shape, classes=7, **changes)


def test_there_and_back_by_the_command(theirs, tmp_path, capsys):
    ours, back = tmp_path / "ours.npz", tmp_path / "back.safetensors"
    assert main(f"from-timm {theirs} {ours} --model tiny".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"Wrote {ours}"
    assert lines[0].split() == ["timm", "shape", "lambdanet_tf"]
    rows = {line.split()[0]: line.split(None, 2)[1:] for line in lines[2:-1]}
    state = read_safetensors(theirs)
    assert rows.keys() == state.keys()
    lambda_layer = "stages.2.0.self_attn"
    assert rows[f"{lambda_layer}.conv_lambda.bias"] == [
        "4",
        "stage4_block1_lambda/position_bias",
    ]
    assert rows[f"{lambda_layer}.qkv.weight"] == [
        "20x16x1x1",
        "stage4_block1_lambda/query/kernel, stage4_block1_lambda/key/kernel, "
        "stage4_block1_lambda/value/kernel",
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
def test_a_changed_network_from_a_file_that_was_saved(tmp_path):
    model, other = (tiny((32, 48, 3), **CHANGES) for _ in range(2))
    ours, theirs = tmp_path / "ours.npz", tmp_path / "theirs.safetensors"
    models.save_weights(model, ours)
    moved = convert.export_to_timm(ours, theirs, "tiny", CHANGES)
    state = read_safetensors(theirs)
    tables = [t.shape for t in moved if t.key.endswith("pos_emb")]
    assert tables == [(15, 23, 4), (7, 11, 4)]
    assert {t.key: t.shape for t in moved} == {
        key: array.shape for key, array in state.items()
    }
    again = tmp_path / "again.npz"
    convert.import_from_timm(theirs, again, "tiny", CHANGES)
    models.load_weights(other, again)
    networks.assert_weights(other, model)


@pytest.mark.slow
def test_the_published_networks_are_recognized(tmp_path):
    for name in ("LambdaResNet26T", "LambdaResNet26RPT256"):
        state = {
            tensor.key: np.zeros(
                tensor.shape,
                np.int64 if tensor.layout == "counter" else np.float32,
            )
            for tensor in timm_golden.tensors(specs.RESNETS[name])
        }
        path, ours = tmp_path / "zeros.safetensors", tmp_path / "zeros.npz"
        write_safetensors(path, state)
        moved = convert.import_from_timm(path, ours)
        assert len(moved) == len(state)
        with np.load(ours) as archive:
            assert json.loads(str(archive["format"]))["model"] == name


@pytest.mark.slow
def test_what_is_refused_writes_nothing(theirs, tmp_path, capsys):
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(theirs.read_bytes()[:-1])
    weights = tmp_path / "weights.npz"
    models.save_weights(tiny(), weights)
    before = sorted(tmp_path.iterdir())
    new, out = f"{tmp_path}/new.npz", f"{tmp_path}/new.safetensors"
    to_tiny, there = "--model tiny", f"from-timm {theirs}"
    for command, message in (
        (f"from-timm lambda_resnet26 {new}", "one of .*Did you mean"),
        (f"{there}.safetensors {new}", "No such file"),
        (f"{there} {new}", "--model must be given .*el=None"),
        (f"{there} {out} {to_tiny}", "`destination` must end in"),
        (
            f"{there} {new} --model Tiny",
            "--model must be a residual network. .*Did you mean 'tiny'",
        ),
        (f"from-timm {damaged} {new} {to_tiny}", "damaged"),
        (
            f'{there} {new} {to_tiny} --model-arguments={{"scope":3}}',
            "and .4, 1, 3, 3, 1. in the model",
        ),
        (
            f"to-timm {weights} {out} {to_tiny} --model-arguments=[]",
            "must be a JSON object",
        ),
        (
            f"{there} {tmp_path}/no/new.npz {to_tiny}",
            "No such file or directory",
        ),
        (f"to-timm {weights} {new} {to_tiny}", "`destination` must end in"),
        (
            f"to-timm {weights} {out} --model LambdaResNet50",
            "timm cannot express LambdaResNet50: ",
        ),
        (
            f"to-timm {weights} {out} --model LambdaResNet26T",
            "missing in the file",
        ),
        (
            f"to-timm {weights} {out} {to_tiny} --changes={{}}",
            "--changes is --model-arguments now",
        ),
    ):
        assert main(command.split()) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("python -m lambdanet_tf.convert: ")
        assert re.search(message, captured.err)
        assert sorted(tmp_path.iterdir()) == before


def test_it_is_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["convert", "--help"])
    monkeypatch.delitem(sys.modules, "lambdanet_tf.convert")
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("lambdanet_tf.convert", run_name="__main__")
    assert "from-timm" in capsys.readouterr().out


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def by_hand(tmp_path, header, data=b"", length=None):
    """A file of a header of any kind, and bytes behind it."""
    path = tmp_path / "file.safetensors"
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if length is None else length
    path.write_bytes(length.to_bytes(8, "little") + text + data)
    return path


def test_every_dtype(tmp_path):
    header = {
        "__metadata__": {"format": "pt"},
        "float": entry("F32", [2, 1], 0, 8),
        "half": entry("F16", [2], 8, 12),
        "brain": entry("BF16", [2], 12, 16),
        "integer": entry("I64", [], 16, 24),
        "empty": entry("F32", [0, 3], 24, 24),
    }
    data = np.array([1.5, -2.25], "<f4").tobytes()
    data += np.array([0.5, 65504], "<f2").tobytes()
    data += bytes([0xC0, 0x3F, 0x80, 0xFF])  # 1.5 and -infinity
    data += (-(2**40)).to_bytes(8, "little", signed=True)
    arrays = read_safetensors(by_hand(tmp_path, header, data))
    np.testing.assert_array_equal(arrays["float"], [[1.5], [-2.25]])
    np.testing.assert_array_equal(arrays["half"], [0.5, 65504])
    np.testing.assert_array_equal(arrays["brain"], [1.5, -np.inf])
    np.testing.assert_array_equal(arrays["integer"], -(2**40))
    assert arrays["empty"].shape == (0, 3)
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "float": "float32",
        "half": "float16",
        "brain": "float32",
        "integer": "int64",
        "empty": "float32",
    }


def test_what_is_written_is_read(tmp_path, rng):
    arrays = {
        "b": rng.normal(size=[3, 2, 1]).astype(np.float32),
        "a": np.array(7),
        "strided": rng.normal(size=[4, 5]).astype(np.float32)[::2, ::-1],
    }
    path = tmp_path / "file.safetensors"
    write_safetensors(path, arrays)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    content = path.read_bytes()
    assert int.from_bytes(content[:8], "little") % 8 == 0
    back = read_safetensors(path)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    with pytest.raises(ValueError, match="a of float16"):
        write_safetensors(path, {"a": np.zeros(3, np.float16)})
    assert path.read_bytes() == content


ONE = {"a": entry("F32", [2], 0, 8)}


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (ONE, bytes(7)),
        (ONE, bytes(9)),
        ({"a": entry("F32", [2], 4, 12)}, bytes(12)),
        ({**ONE, "b": entry("F32", [2], 4, 12)}, bytes(12)),
        ({**ONE, "b": entry("F32", [2], 0, 8)}, bytes(8)),
        ({"a": entry("F32", [3], 0, 8)}, bytes(8)),
        ({"a": entry("F32", [2], 8, 0)}, bytes(8)),
        ({"a": entry("F32", [-2], 0, 8)}, bytes(8)),
        ({"a": entry("F32", [2**70], 0, 8)}, bytes(8)),
        ({"a": entry("F64", [1], 0, 8)}, bytes(8)),
        ({"a": entry("F8_E4M3", [8], 0, 8)}, bytes(8)),
        ({"a": {"dtype": "F32"}}, b""),
        ([ONE], bytes(8)),
        (b"{", b""),
        (b"\xff\xfe", b""),
        (b"[" * 100_000, b""),
    ],
)
def test_damaged_files(tmp_path, header, data):
    path = by_hand(tmp_path, header, data)
    with pytest.raises(ValueError, match="safetensors|must be F32") as info:
        read_safetensors(path)
    assert str(path) in str(info.value)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("size", "length", "message"),
    [
        *((size, None, "is no safetensors file") for size in (0, 7, 8, 20)),
        *((None, length, "header") for length in (10**6, 2**63, 2**64 - 1)),
    ],
)
def test_files_that_are_cut_and_headers_that_are_too_long(
    tmp_path, size, length, message
):
    path = by_hand(tmp_path, ONE, bytes(8), length=length)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=message):
        read_safetensors(path)


@pytest.mark.slow
def test_a_damaged_file_changes_no_weight(theirs):
    """Whole or nothing: cut anywhere, or with a wrong header."""
    network = tiny()
    whole, before = theirs.read_bytes(), networks.arrays(network)
    for content in (
        whole[: len(whole) // 2],
        whole[:-1],
        whole + b" ",
        whole.replace(b'"F32"', b'"F16"', 1),
        whole.replace(b"head.fc.bias", b"head.fc.bIas", 1),
    ):
        theirs.write_bytes(content)
        with pytest.raises(ValueError, match=theirs.name) as info:
            load_initial(network, TINY, theirs)
        assert "\n" not in str(info.value)
        networks.assert_weights(network, before)
    theirs.write_bytes(whole)
    load_initial(network, TINY, theirs)
    assert np.any(networks.arrays(network)["predictions/bias"])


@pytest.mark.slow
def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    remedy = r'pip install "lambdanet-tf\[pretrained\]"'
    with pytest.raises(ImportError, match=remedy):
        models.LambdaResNet26T(weights="imagenet")  # Nothing is fetched.
    with pytest.raises(ImportError, match=remedy):
        read_safetensors(tmp_path / "any.safetensors")
