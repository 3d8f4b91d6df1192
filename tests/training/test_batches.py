"""The batches of a recipe: each image once, on any number of hosts."""

import dataclasses
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from lambdanet_tf import data
from lambdanet_tf import training
from lambdanet_tf.training.steps import Evaluation
from tests.support.image_sets import Files
from tests.support.image_sets import example
from tests.support.image_sets import png
from tests.support.image_sets import write_file
from tests.support.image_sets import write_folder
from tests.support.image_sets import write_parts

pytestmark = pytest.mark.once
THOROUGH = pytest.mark.thorough


class Hosts:
    """A strategy of several hosts, whose datasets are made one by one."""

    def __init__(self, hosts, replicas):
        self.hosts, self.num_replicas_in_sync = hosts, replicas

    def distribute_datasets_from_function(self, make):
        contexts = [
            types.SimpleNamespace(
                num_input_pipelines=self.hosts, input_pipeline_id=index
            )
            for index in range(self.hosts)
        ]
        return [make(context) for context in contexts]


def pipeline_of(images, batch_size, strategy=None):
    """The batches of images of one pixel."""
    changes = {"batch_size": batch_size, "image_size": 1}
    recipe = training.resolve("smoke", changes)
    return training.InputPipeline(recipe, images, strategy)


def evaluate(source, strategy, batch_size=4, channels=1):
    """Evaluates a source; returns images that counted, and bad ones."""
    parts = [source, None, source]
    images = data.ImageSet.build("x", ["a", "b"], channels, parts, "x")
    pipeline = pipeline_of(images, batch_size, strategy)
    good = bad = 0
    steps = []
    for host in pipeline.evaluation(source):
        batches = list(host)
        good += sum(float(np.sum(batch[2])) for batch in batches)
        bad += sum(float(batch[3]) for batch in batches)
        steps.append(len(batches))
    assert len(set(steps)) == 1, "all hosts take equally many steps"
    return good, bad


@pytest.mark.thorough
@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    hosts=st.integers(2, 64),
    exact=st.booleans(),
)
def test_every_image_of_drawn_files_counts_once(sizes, hosts, exact):
    source = Files(*sizes, exact=exact)
    shards = [data.Shard(index, hosts) for index in range(hosts)]
    assert sum(map(source.shard_size, shards)) == sum(sizes)
    labels = []
    for shard in shards:
        found = [int(item["label"]) for _, item in source.scan(shard)]
        assert len(found) == source.shard_size(shard)
        labels += found
    assert sorted(labels) == list(range(sum(sizes)))


@pytest.mark.parametrize("sizes", [[10] * 3, [1, 1, 30, 2], [17]])
@pytest.mark.parametrize(("hosts", "replicas"), [(1, 1), (2, 4), (5, 5)])
def test_the_weights_of_an_evaluation_are_the_images(sizes, hosts, replicas):
    strategy = Hosts(hosts, replicas)
    assert evaluate(Files(*sizes), strategy, replicas * 2) == (sum(sizes), 0)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Folders and records of the same 23 images, of which four are bad."""
    folder = tmp_path_factory.mktemp("sets")
    contents = [png([i, i, i], (1, 1)) for i in range(23)]
    for number in (0, 7, 8, 22):
        contents[number] = b"nothing"
    for part in ("train", "test"):
        for i, content in enumerate(contents):
            path = folder / "folder" / part / "ab"[i % 2] / f"{i:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        examples = [example(x, i % 2) for i, x in enumerate(contents)]
        for file, (first, end) in enumerate([(0, 3), (3, 10), (10, 23)]):
            name = f"{part}-{file:05d}-of-00003.tfrecord"
            path = folder / "records" / name
            path.parent.mkdir(exist_ok=True)
            write_file(path, examples[first:end])
    return {
        "folder": data.load_images(f"folder:{folder}/folder", 0.0),
        "records": data.load_images(f"records:{folder}/records,classes=2", 0.0),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "records"])
@pytest.mark.parametrize(
    "hosts", [1, 3, *(pytest.param(n, marks=THOROUGH) for n in (2, 7, 20))]
)
def test_bad_images_are_counted_on_any_number_of_hosts(sets, kind, hosts):
    found = evaluate(sets[kind].test, Hosts(hosts, hosts), hosts, 3)
    assert found == (19, 4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "records"])
@pytest.mark.parametrize("batch_size", [2, 8, 64])
def test_a_scan_says_its_batches_and_has_each_image(sets, kind, batch_size):
    pipeline = pipeline_of(sets[kind], 2)
    pipeline.recipe = dataclasses.replace(
        pipeline.recipe, batch_size=batch_size
    )
    scan = pipeline.scan(sets[kind].test)
    batches = [images.numpy() for images, _ in scan]
    assert int(scan.cardinality()) == -(-23 // batch_size)
    assert len(batches) == -(-19 // batch_size)
    values = np.concatenate(batches)[:, 0, 0, 0]
    good = [i for i in range(23) if i not in (0, 7, 8, 22)]
    assert sorted(values) == good


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "records"])
def test_training_counts_each_bad_image_once_in_a_pass(sets, kind):
    pipeline = pipeline_of(sets[kind], 19)
    batches = list(pipeline.dataset(count_bad=True).take(6))
    bad = np.cumsum([float(batch[2]) for batch in batches])
    # Six times the good images of a pass: all of six passes but bad last ones.
    assert 24 - 4 < bad[-1] <= 24
    again = pipeline.dataset(count_bad=True).take(6)
    assert [float(b[2]) for b in again] == [float(b[2]) for b in batches]
    names = list(data.check_images(sets[kind]))
    assert len(names) == len(set(names)) == 8


@pytest.mark.slow
def test_the_rest_of_a_damaged_file_is_counted(tmp_path):
    examples = [example(png([9] * 3, (1, 1)), i % 2) for i in range(9)]
    write_parts(tmp_path, train=examples, test=examples)
    for path in tmp_path.iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(bytes(content))
    source = data.read_records(str(tmp_path), 0.0, classes=2).test
    for hosts in (1, 3):
        assert evaluate(source, Hosts(hosts, hosts), 2 * hosts, 3) == (4, 5)


@pytest.mark.slow
def test_validation_does_not_build_its_data_again(sets):
    pipeline = pipeline_of(sets["folder"], 4, Hosts(1, 1))
    source = sets["folder"].test
    assert pipeline.evaluation(source) is pipeline.evaluation(source)


def test_a_lost_image_ends_an_evaluation(monkeypatch):
    recipe = training.resolve("smoke", {"batch_size": 32})
    pipeline = training.InputPipeline(recipe, data.load_images("digits"))
    model = training.recipe_network(recipe, pipeline.images)
    evaluation = Evaluation(model, pipeline)
    source = pipeline.images.test
    assert evaluation.metrics(source)["images"] == 359
    batches = pipeline.evaluation(source)
    monkeypatch.setattr(pipeline, "evaluation", lambda source: batches.take(5))
    with pytest.raises(RuntimeError, match="359 images .* Evaluated: 160"):
        evaluation.metrics(source)


@pytest.mark.slow
def test_where_no_image_can_be_read_it_is_said_before_training(tmp_path):
    write_folder(tmp_path, ["train", "test"], number=1)
    for path in tmp_path.glob("test/*/0.png"):
        path.write_bytes(b"<html>404</html>")
    images = data.read_folder(str(tmp_path), 0.0)
    recipe = training.resolve("smoke", {"batch_size": 2})
    with pytest.raises(
        ValueError, match=r"None of the test images .*test/a/0.png: No JPEG"
    ):
        training.InputPipeline(recipe, images)
