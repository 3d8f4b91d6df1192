"""`python -m lambdanet_tf.convert`: files there, back, and what is refused."""

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
from lambdanet_tf.models.timm.safetensors import read_safetensors
from lambdanet_tf.models.timm.safetensors import write_safetensors
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


def test_there_and_back_by_the_command(theirs, tmp_path, capsys):
    ours, back = tmp_path / "ours.npz", tmp_path / "back.safetensors"
    arguments = ["from-timm", str(theirs), str(ours), "--model", "tiny"]
    assert main(arguments) == 0
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

    model = models.ResNet(TINY, input_shape=(32, 32, 3), classes=7)
    models.load_weights(model, ours)
    shown = " ".join(f"{text}," for _, text in rows.values())
    for name in models.named_weights(model):
        assert shown.count(f"{name},") == 1, name

    assert main(["to-timm", str(ours), str(back), "--model", "tiny"]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == lines[:-1]
    assert back.read_bytes() == theirs.read_bytes()


@pytest.mark.slow
def test_a_changed_network_from_a_file_that_was_saved(tmp_path):
    model = models.ResNet(TINY, input_shape=(32, 48, 3), classes=7, **CHANGES)
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
    other = models.ResNet(TINY, input_shape=(32, 48, 3), classes=7, **CHANGES)
    models.load_weights(other, again)
    for name, weight in models.named_weights(model).items():
        same = models.named_weights(other)[name]
        np.testing.assert_array_equal(np.asarray(weight), np.asarray(same))


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
    models.save_weights(
        models.ResNet(TINY, input_shape=(32, 32, 3), classes=7), weights
    )
    before = sorted(tmp_path.iterdir())
    new, out = f"{tmp_path}/new.npz", f"{tmp_path}/new.safetensors"
    tiny = ["--model", "tiny"]
    for arguments, message in (
        (["from-timm", "lambda_resnet26", new], "one of .*Did you mean"),
        (["from-timm", f"{theirs}.safetensors", new], "No such file"),
        (["from-timm", str(theirs), new], "--model must be given .*el=None"),
        (["from-timm", str(theirs), out, *tiny], "`destination` must end in"),
        (
            ["from-timm", str(theirs), new, "--model", "Tiny"],
            "--model must be a residual network. .*Did you mean 'tiny'",
        ),
        (["from-timm", str(damaged), new, *tiny], "damaged"),
        (
            [
                "from-timm",
                str(theirs),
                new,
                *tiny,
                '--model-arguments={"scope": 3}',
            ],
            "and .4, 1, 3, 3, 1. in the model",
        ),
        (
            ["to-timm", str(weights), out, *tiny, "--model-arguments=[]"],
            "must be a JSON object",
        ),
        (
            ["from-timm", str(theirs), f"{tmp_path}/no/new.npz", *tiny],
            "No such file or directory",
        ),
        (["to-timm", str(weights), new, *tiny], "`destination` must end in"),
        (
            ["to-timm", str(weights), out, "--model", "LambdaResNet50"],
            "timm cannot express LambdaResNet50: ",
        ),
        (
            ["to-timm", str(weights), out, "--model", "LambdaResNet26T"],
            "missing in the file",
        ),
    ):
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("python -m lambdanet_tf.convert: ")
        assert re.search(message, captured.err)
        assert sorted(tmp_path.iterdir()) == before
    assert main(["to-timm", str(weights), out, *tiny, "--changes={}"]) == 2
    assert "--changes is --model-arguments now" in capsys.readouterr().err


def test_it_is_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["convert", "--help"])
    monkeypatch.delitem(sys.modules, "lambdanet_tf.convert")
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("lambdanet_tf.convert", run_name="__main__")
    assert "from-timm" in capsys.readouterr().out
