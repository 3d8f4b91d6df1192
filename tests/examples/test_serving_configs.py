"""The example's files for the server are what TF Serving and Compose parse."""

import re

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from lambdanet_tf.serving import requests
from tests.support.served import EXAMPLE
from tests.support.served import ROOT

pytestmark = pytest.mark.once


def lines_of(file):
    """The lines of a file of the example without its comments."""
    lines = (EXAMPLE / file).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_versions_and_labels():
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse((EXAMPLE / "model.config").read_text(), config)
    [model] = config.model_config_list.config
    versions = set(model.model_version_policy.specific.versions)
    assert model.base_path == f"/models/{model.name}"
    assert set(model.version_labels) == {"stable", "canary"}
    assert set(model.version_labels.values()) <= versions


# tensorflow-serving-api lacks the messages of the next two. Their fields are
# those of TF Serving's session_bundle_config.proto and monitoring_config.proto.
def test_batching_parameters():
    lines = lines_of("batching.config")
    text = "\n".join(lines)
    number = r"^(\w+) \{ value: (\d+) \}$"  # an Int64Value
    values = dict(re.findall(number, text, re.MULTILINE))
    assert values.keys() <= {
        "max_batch_size",
        "batch_timeout_micros",
        "max_enqueued_batches",
        "num_batch_threads",
    }
    sizes = re.findall(r"^allowed_batch_sizes: (\d+)$", text, re.MULTILINE)
    assert len(values) + len(sizes) == len(lines)
    sizes = [*map(int, sizes)]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == int(values["max_batch_size"])
    assert tuple(sizes) == requests.BATCH_SIZES  # none is met unprepared
    assert int(values["num_batch_threads"]) >= 1


def test_monitoring():
    text = " ".join(" ".join(lines_of("monitoring.config")).split())
    form = r'prometheus_config \{ enable: true path: "/monitoring/[^"]*" \}'
    assert re.fullmatch(form, text)


def test_compose():
    yaml = pytest.importorskip("yaml")
    text = (EXAMPLE / "compose.yaml").read_text()
    [service] = yaml.safe_load(text)["services"].values()
    name, version = service["image"].split(":")
    assert name == "tensorflow/serving"
    constraints = (ROOT / "requirements/constraints.txt").read_text()
    pinned = re.search(r"^tensorflow==([\d.]+)", constraints, re.M)[1]
    numbers = [[*map(int, text.split("."))] for text in (version, pinned)]
    assert len(numbers[0]) == 3
    assert numbers[0] >= numbers[1]
    ports = [port.rpartition(":")[2] for port in service["ports"]]
    assert ports == ["8500", "8501"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    mounted = dict(reversed(v.split(":")[:2]) for v in service["volumes"])
    assert (EXAMPLE / mounted["/models"]).resolve() == ROOT / "exported"
    flag = re.compile(r"--\w+_file=/config/(\S+)")
    files = [*flag.findall(text)]
    assert sorted(files) == ["batching.config", "monitoring.config"]
    for file in files:
        assert (EXAMPLE / mounted["/config"] / file).is_file()
    assert re.fullmatch(r"\d+g", service["mem_limit"])
