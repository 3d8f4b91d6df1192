"""Compares convolutions, lambda layers and attention on Fashion-MNIST.

    python -m benchmarks.studies.fashion --data FOLDER --stage small
    python -m benchmarks.studies.fashion --data FOLDER --stage 28px --times

FOLDER holds the IDX files (of Debian's package dataset-fashion-mnist). The
protocol is docs/study.md. A run that was interrupted is continued.
"""

import functools
import gzip
import pathlib
from typing import NamedTuple

import numpy as np

from benchmarks import records
from benchmarks import timing
from benchmarks.networks.speed import compiled_steps
from benchmarks.studies import runs
from lambdanet_tf import models
from lambdanet_tf import training
from lambdanet_tf.analysis import analyze

DATA = "/usr/share/datasets/fashion-mnist"
SPLIT_SEED = 20_260_101
BATCH = 64
SEARCH_SEED = 1000  # no seed of a final run


class Arm(NamedTuple):
    letters: str  # of its blocks in each stage: `specs.LETTERS`
    widths: tuple[int, ...]  # the main arms have as many parameters
    against: str | None = None
    arguments: dict = {}  # of the network, beside these


_GLOBAL = "lambda layers"
SMALL = {
    _GLOBAL: Arm("LLL", (16, 32, 64)),
    "convolutions": Arm("CCC", (15, 30, 62), _GLOBAL),
    "global attention": Arm("AAA", (16, 36, 72), _GLOBAL),
    "local attention": Arm("SSS", (16, 36, 72), _GLOBAL),
}
# Tables 8 to 12: the blocks, and arguments.
ABLATIONS = {
    "content only": ("LLL", {"use_position": False}),
    "position only": ("LLL", {"use_content": False}),
    "scope 3": ("LLL", {"scope": 3}),
    "scope 7": ("LLL", {"scope": 7}),
    "1 head": ("LLL", {"num_heads": 1}),
    "8 heads, depth 8": ("LLL", {"num_heads": 8, "key_dim": 8}),
    "scope 7, intra-depth 4": ("LLL", {"scope": 7, "intra_depth": 4}),
    "softmax of queries too": ("LLL", {"query_normalization": "softmax"}),
    "L2 of keys": ("LLL", {"key_normalization": "l2"}),
    "keys not normalized": ("LLL", {"key_normalization": None}),
    "queries, values not normalized": ("LLL", {"use_batch_norm": False}),
    "C-L-L": ("CLL", {}),
    "C-C-L": ("CCL", {}),
    "L-C-C": ("LCC", {}),
}
ABLATED = {
    name: Arm(letters, (16, 32, 64), _GLOBAL, arguments)
    for name, (letters, arguments) in ABLATIONS.items()
}
_LOCAL = "lambda layers, scope 7"
_SE = {"se_ratio": 1 / 16, "se_stages": (2, 3)}
LARGE = {
    _LOCAL: Arm("LL", (32, 64), None, {"scope": 7}),
    "lambda layers, global": Arm("LL", (24, 68), _LOCAL),
    "convolutions": Arm("CC", (36, 52), _LOCAL),
    "convolutions, squeeze-and-excitation": Arm("CC", (38, 48), _LOCAL, _SE),
    "local attention": Arm("SS", (36, 60), _LOCAL),
    "global attention": Arm("AA", (28, 68), _LOCAL, {"attention_key_dim": 8}),
}


class Stage(NamedTuple):
    image_size: int
    arms: dict[str, Arm]
    rates: tuple[float, ...]  # of the search, per 256 images
    # Arms with a search of their own; others take the lambda layers' rate.
    searched: tuple[str, ...]
    seeds: dict[str, int]  # how many each arm has
    blocks: str = "X"  # of a stage of the network; X is the arm's letter
    strides: tuple[int, ...] | None = None  # of its stages; None: its own
    grid: tuple[float, ...] | None = None  # of rates that may follow
    epochs: int = 6
    train_images: int = 10_000  # a stratified sample
    validation_images: int = 5_000  # another, for the search of the rate


STAGES = {
    "small": Stage(
        image_size=14,
        arms=SMALL | ABLATED,
        rates=(0.2, 0.5, 1.2),
        searched=tuple(SMALL),
        seeds=dict.fromkeys(SMALL, 5) | dict.fromkeys(ABLATED, 3),
    ),
    "28px": Stage(
        image_size=28,
        arms=LARGE,
        rates=(0.5, 1.2, 3.0),
        grid=(0.2, 0.5, 1.2, 3.0, 7.5),
        searched=tuple(LARGE),
        seeds=dict.fromkeys(LARGE, 3),
        blocks="CX",
        strides=(2, 2),
    ),
}


def model_arguments(name, stage):
    arm = stage.arms[name]
    stages = [stage.blocks.replace("X", x) for x in arm.letters]
    arguments = {"stages": stages, "widths": list(arm.widths)}
    if stage.strides:
        arguments["strides"] = list(stage.strides)
    if "L" in arm.letters and arm.arguments.get("use_position", True):
        arguments["scope"] = None
    if arm.letters[0] in "AS":
        arguments["attention_heads"] = 4
    return {**arguments, **arm.arguments}


def recipe(name, stage, data, seed, rate):
    fields = {
        "data": data,
        "image_size": stage.image_size,
        "validation_split": 0.0,  # the weights are those of the last epoch
        "augmentation": "pad_crop",
        "padding": 2 if stage.image_size > 20 else 1,
        "flip": True,
        "model_arguments": model_arguments(name, stage),
        "epochs": stage.epochs,
        "batch_size": BATCH,
        "warmup_epochs": 1.0,
        "learning_rate": rate,
        "dropout_rate": 0.0,
        "ema_decay": 0.98,
        "seed": seed,
    }
    return training.resolve("digits", fields)


KINDS = ("images-idx3", "labels-idx1")
FILES = [f"{x}-{y}-ubyte" for x in ("train", "t10k") for y in KINDS]
CLASSES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal"]
CLASSES += ["Shirt", "Sneaker", "Bag", "Ankle boot"]


def split_data(source, folder, stage):
    images, labels, *test = read_files(source)
    counts = stage.train_images, stage.validation_images
    generator = np.random.default_rng(SPLIT_SEED)
    train, validation = _stratified(labels, counts, generator)
    parts = {"search": (images[validation], labels[validation]), "final": test}
    folder.mkdir(parents=True, exist_ok=True)
    for name, last in parts.items():
        write_set(folder / f"{name}.npz", images[train], labels[train], *last)


def read_files(folder):
    for name in FILES:
        path = pathlib.Path(folder) / name
        if path.exists():
            content = path.read_bytes()
        else:
            content = gzip.decompress(path.with_name(f"{name}.gz").read_bytes())
        shape = np.frombuffer(content, ">i4", content[3], offset=4)
        pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape))
        yield pixels.reshape(shape)


def write_set(path, *arrays):
    """Writes images and labels of training and test for `arrays:`."""
    names = ("x_train", "y_train", "x_test", "y_test")
    named = dict(zip(names, arrays, strict=True))
    np.savez(path, classes=CLASSES, **named)


def _stratified(labels, counts, generator):
    """Disjoint index arrays with the same number of each class in each."""
    classes = np.unique(labels)
    ends = np.cumsum([count // len(classes) for count in counts])
    parts = [
        np.split(generator.permutation(np.flatnonzero(labels == label)), ends)
        for label in classes
    ]
    *chosen, _ = map(np.concatenate, zip(*parts, strict=True))
    return map(np.sort, chosen)


def study(recorder, folder, stage_name, stage, names):
    """Searches the rates and trains the final networks of arms of a stage."""
    usual = next(iter(stage.arms))

    def trained(part, name, seed, rate, _=None):
        data = f"arrays:{folder / 'data' / part}.npz"

        def measure(case):
            place = folder / runs.slug(part, name, seed, rate)
            total = analyze(build(name, stage)).total
            facts = {x: total(x) for x in ("parameters", "flops")}
            facts["against"] = stage.arms[name].against
            chosen = recipe(name, stage, data, seed, rate)
            return runs.train(chosen, place) | facts

        case = {"stage": stage_name, "part": part, "arm": name}
        case |= {"seed": seed, "rate": rate}
        return recorder.get(case, measure)["accuracy"]

    best, grid = {}, stage.grid or stage.rates
    for name in (x for x in stage.searched if x in (usual, *names)):
        score = functools.partial(trained, "search", name, SEARCH_SEED)
        best[name], _ = runs.search(grid, stage.rates, score)
    for seed in range(max(stage.seeds.values())):
        for name in (x for x in names if seed < stage.seeds[x]):
            trained("final", name, seed, best.get(name, best[usual]))


def build(name, stage):
    return models.LambdaResNetSmall(
        input_shape=(stage.image_size, stage.image_size, 1),
        classes=10,
        classifier_activation=None,
        **model_arguments(name, stage),
    )


def record_times(recorder, stage_name, stage, names, seconds):
    functions = {
        name: compiled_steps(build(name, stage), BATCH, stage.image_size)[1]
        for name in names
    }
    for name, taken in timing.turns(functions, seconds * len(names)).items():
        case = {"stage": stage_name, "part": "time", "arm": name}
        recorder.append({**case, "batch": BATCH}, seconds=taken)


DEFAULTS = {"data": DATA, "stage": "small", "runs": "runs/study"}


@records.script("fashion", times=False, seconds=20.0, **DEFAULTS)
def main(recorder, options):
    stage = STAGES[options.stage]
    names = [name for name in stage.arms if options.only in name]
    if options.times:
        record_times(recorder, options.stage, stage, names, options.seconds)
        return
    folder = pathlib.Path(options.runs) / options.stage
    split_data(options.data, folder / "data", stage)
    study(recorder, folder, options.stage, stage, names)
