"""The parts of the example that need no server."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from examples.serving import command_line
from examples.serving import load
from examples.serving import pictures
from examples.serving.errors import ServingError
from examples.serving.errors import of_status

pytestmark = pytest.mark.once


class Sleeper:
    """A client that takes a known time."""

    def __init__(self, seconds, fails=False):
        self._seconds, self._fails = seconds, fails

    def send(self, _):
        time.sleep(self._seconds)
        if self._fails:
            raise ServingError("failed", "out of order")

    def close(self):
        pass


def under_load(client_of, clients=1, batch=1, duration=0.4):
    measurement = load.Measurement("grpc", clients, batch)
    stop = threading.Event()
    load.measure(client_of, None, measurement, duration, 0.05, stop)
    return measurement


@pytest.mark.slow
def test_figures_of_a_client_that_takes_a_known_time():
    one = under_load(lambda: Sleeper(0.02), batch=3)
    assert min(one.latencies) >= 0.02
    assert len(one.latencies) <= 0.4 / 0.02 + 1
    assert sum(one.latencies) <= one.seconds
    rate = 3 * len(one.latencies) / one.seconds
    assert one.images_per_second == pytest.approx(rate)
    assert rate <= 3 / 0.02
    assert not one.errors
    four = under_load(lambda: Sleeper(0.02), clients=4)
    assert len(four.latencies) > 2 * len(one.latencies)
    assert sum(four.latencies) <= 4 * four.seconds


def test_percentiles_are_nearest_ranks():
    measurement = load.Measurement("grpc", 1, 1)
    measurement.latencies = [0.004, 0.001, 0.003, 0.002]
    ranks = [measurement.percentile(p) for p in (25, 50, 51, 95, 100)]
    assert ranks == [0.001, 0.002, 0.003, 0.004, 0.004]
    assert np.isnan(load.Measurement("grpc", 1, 1).percentile(50))


def test_failed_requests_are_counted_by_kind():
    measurement = under_load(lambda: Sleeper(0.01, fails=True), duration=0.3)
    assert measurement.latencies == []
    assert [*measurement.errors] == ["failed"]
    assert 1 <= measurement.errors["failed"] <= 4  # a pause after each
    assert measurement.example == "out of order"
    assert measurement.images_per_second == 0
    assert (
        load.line(measurement).split()[3:5]
        == [str(measurement.errors["failed"])] * 2
    )


def test_a_batch_repeats_the_files(tmp_path):
    class Client:
        def request(self, signature, batch):
            return signature, batch

    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_text(file.name)
    options = load.parse(["m", *map(str, files)])
    request = load.request_of(Client(), options, 5)
    assert request == ("serving_bytes", [b"a", b"b", b"a", b"b", b"a"])


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_numbers_of_clients_are_positive(number, capsys):
    with pytest.raises(SystemExit):
        load.parse(["m", "a.png", "--clients", number])
    assert "--clients" in capsys.readouterr().err


def test_a_model_of_any_size_needs_one_from_the_user(tmp_path):
    class AnySize:
        def image_shape(self, _):
            return [-1, -1, 3]

    file = tmp_path / "a.png"
    file.write_bytes(tf.io.encode_png(np.zeros((9, 8, 3), "u1")).numpy())
    arguments = ["m", str(file), "--signature", "features"]
    with pytest.raises(ServingError, match="any size: choose a --size"):
        command_line.batch_of(AnySize(), load.parse(arguments))
    options = load.parse([*arguments, "--size", "4", "6"])
    assert command_line.batch_of(AnySize(), options).shape == (1, 4, 6, 3)


def test_files_that_are_no_images_are_named(tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no")
    with pytest.raises(ServingError, match=r"No such file.*nix\.png"):
        pictures.read([tmp_path / "nix.png"])
    with pytest.raises(ServingError, match=r"broken\.jpg is no image"):
        pictures.pixels([broken], (8, 7, 1))


def test_the_operations_words_are_found_among_the_others():
    details = "2 root error(s) found.\n  (0) INVALID_ARGUMENT: no [1]\n\t [[{"
    message = str(of_status("refused", details))
    assert message.endswith("the request: (0) INVALID_ARGUMENT: no [1]")
