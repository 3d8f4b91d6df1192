"""`tf.distribute.TPUStrategy` on a machine without a TPU: to trace, not to run.

It is the real class: a resolver describes cores that are not there, then parts
of the CPU take their places. The private attributes are those of TensorFlow
2.20 and 2.21.
"""

import collections

import numpy as np
import tensorflow as tf

_PLACE = "/job:localhost/replica:0/task:0/device:"
_Device = collections.namedtuple("_Device", "name device_type")


class FakeResolver(tf.distribute.cluster_resolver.TPUClusterResolver):
    def __init__(self, num_cores):
        self._num_cores = num_cores

    def get_tpu_system_metadata(self):
        places = [f"{_PLACE}TPU:{i}" for i in range(self._num_cores)]
        cores = [_Device(place, "TPU") for place in places]
        return tf.tpu.experimental.TPUSystemMetadata(
            num_cores=self._num_cores,
            num_hosts=1,
            num_of_cores_per_host=self._num_cores,
            topology=None,
            devices=[_Device(f"{_PLACE}CPU:0", "CPU"), *cores],
        )

    def master(self, *args, **kwargs):
        return ""

    def cluster_spec(self):
        return tf.train.ClusterSpec({})

    def get_job_name(self):
        return "localhost"


def fake_tpu_strategy(num_cores=2):
    """A `TPUStrategy` whose cores are the first logical CPUs."""
    strategy = tf.distribute.TPUStrategy(FakeResolver(num_cores))
    cores = [f"{_PLACE}CPU:{i}" for i in range(num_cores)]
    host, ordered = cores[0], collections.OrderedDict
    extended = strategy.extended
    extended._tpu_devices = np.array([[core] for core in cores], dtype=object)
    extended._host_device = host
    extended._device_input_worker_devices = ordered({host: cores})
    extended._host_input_worker_devices = ordered({host: [host] * num_cores})
    return strategy
