"""The batches of a recipe: each image once, on any number of hosts."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import training
from tests.support.image_sets import Files
from tests.support.image_sets import png
from tests.support.image_sets import write_files

pytestmark = pytest.mark.once


class Hosts:
    """A strategy of several hosts, whose datasets are made one by one."""

    def __init__(self, hosts, replicas):
        self.hosts, self.num_replicas_in_sync = hosts, replicas

    def distribute_datasets_from_function(self, make):
        hosts = range(self.hosts)
        return [make(tf.distribute.InputContext(len(hosts), i)) for i in hosts]


def pipeline_of(images, batch, strategy=None):
    """The batches of images of one pixel."""
    recipe = training.resolve("smoke", {"batch_size": batch, "image_size": 1})
    return training.InputPipeline(recipe, images, strategy)


def evaluate(source, strategy, batch_size=4, channels=1):
    """Returns how many images of an evaluation count."""
    images = data.ImageSet("x", ["a", "b"], channels, source, None, source)
    pipeline = pipeline_of(images, batch_size, strategy)
    hosts = [list(host) for host in pipeline.evaluation(source)]
    assert len({len(batches) for batches in hosts}) == 1, "steps differ"
    batches = [batch for host in hosts for batch in host]
    return sum(float(np.sum(batch[2])) for batch in batches)


@pytest.mark.parametrize("sizes", [[10] * 3, [1, 1, 30, 2], [17]])
@pytest.mark.parametrize(("hosts", "replicas"), [(1, 1), (2, 4), (5, 5)])
def test_the_weights_of_an_evaluation_are_the_images(sizes, hosts, replicas):
    strategy = Hosts(hosts, replicas)
    assert evaluate(Files(*sizes), strategy, replicas * 2) == sum(sizes)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 3])
def test_corrupt_images_do_not_count(tmp_path, hosts):
    """Of 23 images four are corrupt."""
    contents = [png([i, i, i], (1, 1)) for i in range(23)]
    for number in (0, 7, 8, 22):
        contents[number] = b"nothing"
    files = {f"{'ab'[i % 2]}/{i}.png": x for i, x in enumerate(contents)}
    for part in ("train", "test"):
        write_files(tmp_path / part, files)
    images = data.load_images(f"folder:{tmp_path}", 0.0)
    found = evaluate(images.test, Hosts(hosts, hosts), hosts, 3)
    assert found == 19
    (batch,) = pipeline_of(images, 19).training_batches().take(1)
    assert len(np.unique(batch[0])) == 19
