"""The example's files for the server are what TF Serving and Compose parse."""

import re

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf import text_format
from google.protobuf import wrappers_pb2
from tensorflow_serving.config import model_server_config_pb2

from lambdanet_tf.serving import requests
from tests.support.served import EXAMPLE
from tests.support.served import ROOT

pytestmark = pytest.mark.once

# tensorflow-serving-api lacks these messages. Their fields and numbers are
# those of TF Serving's session_bundle_config.proto and monitoring_config.proto.
INT64 = "google.protobuf.Int64Value"
MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": (1, INT64),
        "batch_timeout_micros": (2, INT64),
        "max_enqueued_batches": (3, INT64),
        "num_batch_threads": (4, INT64),
        "allowed_batch_sizes": (6, "repeated int64"),
    },
    "PrometheusConfig": {"enable": (1, "bool"), "path": (2, "string")},
    "MonitoringConfig": {"prometheus_config": (1, "test.PrometheusConfig")},
}


def parsed(file, name):
    """Parses a file of the example as a message of `MESSAGES`."""
    described = descriptor_pb2.FileDescriptorProto(
        name="test.proto",
        package="test",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    for message, fields in MESSAGES.items():
        added = described.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            _describe(added.field.add(name=field, number=number), kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(described.SerializeToString())
    kind = pool.FindMessageTypeByName(f"test.{name}")
    message = message_factory.GetMessageClass(kind)()
    return text_format.Parse((EXAMPLE / file).read_text(), message)


def _describe(field, kind):
    label, _, kind = f" {kind}".rpartition(" ")
    field.label = (
        field.LABEL_REPEATED if "repeated" in label else field.LABEL_OPTIONAL
    )
    if "." in kind:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")


def test_versions_and_labels():
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse((EXAMPLE / "model.config").read_text(), config)
    [model] = config.model_config_list.config
    versions = set(model.model_version_policy.specific.versions)
    assert model.base_path == f"/models/{model.name}"
    assert set(model.version_labels) == {"stable", "canary"}
    assert set(model.version_labels.values()) <= versions


def test_batching_parameters():
    config = parsed("batching.config", "BatchingParameters")
    sizes = list(config.allowed_batch_sizes)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == config.max_batch_size.value
    assert tuple(sizes) == requests.BATCH_SIZES  # none is met unprepared
    assert config.num_batch_threads.value >= 1


def test_monitoring():
    config = parsed("monitoring.config", "MonitoringConfig")
    assert config.prometheus_config.enable
    assert config.prometheus_config.path.startswith("/monitoring/")


def test_compose():
    """Its health check runs in test_serving_clients.py."""
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
