"""Compares convolutions, lambda layers and attention on Fashion-MNIST.

    python -m benchmarks.studies.fashion --data FOLDER --stage small
    python -m benchmarks.studies.fashion --data FOLDER --stage 28px
    python -m benchmarks.studies.fashion --data FOLDER --stage 28px --times
    python -m benchmarks.studies.fashion --data FOLDER --stage look --seeds 1

FOLDER holds the IDX files of Fashion-MNIST (Debian's package
dataset-fashion-mnist puts them into /usr/share/datasets/fashion-mnist). The
protocol is docs/study.md. Each run has a folder of its own; one that was
interrupted is continued.
"""

import dataclasses
import gzip
import itertools
import multiprocessing
import os
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

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
    """A network and what it is compared with."""

    letters: str = "LLL"  # of its blocks in each stage: `specs.LETTERS`
    arguments: dict = {}  # of the network, beside the widths
    against: str | None = "lambda layers"  # that it is compared with


MAIN = {
    "lambda layers": Arm(against=None),
    "convolutions": Arm("CCC"),
    "global attention": Arm("AAA"),
    "local attention": Arm("SSS"),
}
# Tables 8 to 12.
ABLATIONS = {
    **{
        name: Arm(arguments=arguments)
        for name, arguments in {
            "content only": {"use_position": False},
            "position only": {"use_content": False},
            "scope 3": {"scope": 3},
            "scope 7": {"scope": 7},
            "1 head": {"num_heads": 1},
            "8 heads, depth 8": {"num_heads": 8, "key_dim": 8},
            "scope 7, intra-depth 4": {"scope": 7, "intra_depth": 4},
            "softmax of queries too": {"query_normalization": "softmax"},
            "L2 of keys": {"key_normalization": "l2"},
            "keys not normalized": {"key_normalization": None},
            "queries, values not normalized": {"use_batch_norm": False},
        }.items()
    },
    **{"-".join(letters): Arm(letters) for letters in ("CLL", "CCL", "LCC")},
}
SMALL = {**MAIN, **ABLATIONS}
_LOCAL = "lambda layers, scope 7"
LARGE = {
    _LOCAL: Arm("LL", {"scope": 7}, against=None),
    "lambda layers, global": Arm("LL", against=_LOCAL),
    "convolutions": Arm("CC", against=_LOCAL),
    "convolutions, squeeze-and-excitation": Arm(
        "CC", {"se_ratio": 1 / 16, "se_stages": (2, 3)}, against=_LOCAL
    ),
    "local attention": Arm("SS", against=_LOCAL),
    "global attention": Arm("AA", {"attention_key_dim": 8}, against=_LOCAL),
}


@dataclasses.dataclass(frozen=True)
class Stage:
    """What all runs of a stage have in common."""

    image_size: int
    arms: dict[str, Arm]
    # By letter or arm: parameters of the main arms agree within 5 %.
    widths: dict[str, tuple[int, ...]]
    epochs: int
    rates: tuple[float, ...]  # of the search, per 256 images
    # Arms with a search of their own; others take the lambda layers' rate.
    searched: tuple[str, ...]
    seeds: dict[str, tuple[int, ...]]  # of each arm
    blocks: str = "X"  # of a stage of the network; X is the arm's letter
    strides: tuple[int, ...] | None = None  # of its stages; None: its own
    further_rates: tuple[float, ...] = ()  # where the best is next to them
    train_images: int = 10_000  # a stratified sample
    validation_images: int = 5_000  # another, for the search of the rate


STAGES = {
    "small": Stage(
        image_size=14,
        arms=SMALL,
        widths={
            "L": (16, 32, 64),
            "C": (15, 30, 62),
            "A": (16, 36, 72),
            "S": (16, 36, 72),
        },
        epochs=6,
        rates=(0.2, 0.5, 1.2),
        searched=tuple(MAIN),
        seeds={
            name: (0, 1, 2, 3, 4) if name in MAIN else (0, 1, 2)
            for name in SMALL
        },
    ),
    "28px": Stage(
        image_size=28,
        arms=LARGE,
        widths={
            "L": (32, 64),
            "lambda layers, global": (24, 68),
            "C": (36, 52),
            "convolutions, squeeze-and-excitation": (38, 48),
            "S": (36, 60),
            "A": (28, 68),
        },
        epochs=6,
        rates=(0.5, 1.2, 3.0),
        searched=tuple(LARGE),
        seeds=dict.fromkeys(LARGE, (0, 1, 2)),
        blocks="CX",
        strides=(2, 2),
        further_rates=(0.2, 7.5),
    ),
}
STAGES["look"] = dataclasses.replace(
    STAGES["small"],
    train_images=1_000,
    validation_images=500,
    epochs=1,
    rates=(0.5,),
    searched=("lambda layers",),
    seeds=dict.fromkeys(MAIN, (0, 1, 2, 3, 4)),
)


def model_arguments(name, stage):
    """The arguments of `LambdaResNetSmall` that make an arm's network."""
    arm = stage.arms[name]
    letter = arm.letters[0] if len({*arm.letters}) == 1 else "L"
    arguments = {
        "stages": [stage.blocks.replace("X", x) for x in arm.letters],
        "widths": list(stage.widths.get(name) or stage.widths[letter]),
    }
    if stage.strides:
        arguments["strides"] = list(stage.strides)
    if "L" in arm.letters and arm.arguments.get("use_position", True):
        arguments["scope"] = None
    if letter in "AS":
        arguments["attention_heads"] = 4
    return {**arguments, **arm.arguments}


def recipe(name, stage, data, seed, rate):
    """The recipe of a run: the digits' one with what the protocol says."""
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


FILES = [
    f"{part}-{kind}-ubyte"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
]


CLASSES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal"]
CLASSES += ["Shirt", "Sneaker", "Bag", "Ankle boot"]


def split_data(source, folder, stage):
    """Writes the images of the search and of the final runs.

    In `search.npz` the test images are the validation images: a search never
    reads the test images. In `final.npz` they are those of the set.
    """
    images, labels, *test = read_files(source)
    counts = stage.train_images, stage.validation_images
    generator = np.random.default_rng(SPLIT_SEED)
    train, validation = _stratified(labels, counts, generator)
    parts = {"search": (images[validation], labels[validation]), "final": test}
    folder.mkdir(parents=True, exist_ok=True)
    for name, last in parts.items():
        write_set(folder / f"{name}.npz", images[train], labels[train], *last)


def read_files(folder):
    """Yields the arrays of the four IDX files of Fashion-MNIST."""
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


def plan(stage, names):
    """The arms, in order: first the searches, then final runs by seed."""
    searched = [name for name in names if name in stage.searched]
    usual = next(iter(stage.arms))
    if usual not in searched:
        searched.insert(0, usual)
    final = [(name, seed) for name in names for seed in stage.seeds[name]]
    return searched, sorted(final, key=lambda pair: pair[1])


def run(folder, name, stage, data, seed, rate):
    """Trains one network, unless that is done; returns what is recorded."""
    return runs.train(recipe(name, stage, data, seed, rate), folder)


def run_all(tasks, jobs):
    """What is recorded of runs with some arguments, `jobs` of them at once."""
    if jobs == 1:
        yield from itertools.starmap(run, tasks)
        return
    threads = max((os.cpu_count() or 1) // jobs, 1)
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(_run, tasks)


def _run(task):
    return run(*task)


def study(recorder, folder, stage_name, stage, names, jobs=1):
    """Searches the rates and trains the final networks of arms of a stage."""
    searched, final = plan(stage, names)
    counted = sizes(stage, {*searched, *names})

    def trained(part, planned):
        """Records of runs: those that are known, and the others trained."""
        data = f"arrays:{folder / 'data' / part}.npz"
        rows, waiting, tasks = [], [], []
        for name, seed, rate in planned:
            case = {"stage": stage_name, "part": part, "arm": name}
            case |= {"seed": seed, "rate": rate}
            if known := recorder.known(case):
                rows.append(known)
                continue
            place = folder / runs.slug(part, name, seed, rate)
            waiting.append(case)
            tasks.append((place, name, stage, data, seed, rate))
        for case, found in zip(waiting, run_all(tasks, jobs), strict=True):
            name = case["arm"]
            facts = counted[name] | {"against": stage.arms[name].against}
            rows.append(recorder.append(case, **found, **facts))
        return rows

    accuracies = {name: {} for name in searched}  # by rate
    grid = sorted({*stage.rates, *stage.further_rates})
    waiting = [(x, SEARCH_SEED, y) for x in searched for y in stage.rates]
    while waiting:
        for row in trained("search", waiting):
            case = row["case"]
            accuracies[case["arm"]][case["rate"]] = row["accuracy"]
        # Of equal ones the lower rate.
        best = {x: max(sorted(y), key=y.get) for x, y in accuracies.items()}
        waiting = [
            (name, SEARCH_SEED, rate)
            for name, tried in accuracies.items()
            for rate in runs.untried(grid, best[name], tried)
        ]
    usual = best[next(iter(stage.arms))]
    trained(
        "final", [(name, seed, best.get(name, usual)) for name, seed in final]
    )


def build(name, stage):
    """The network of an arm, up to its logits."""
    return models.LambdaResNetSmall(
        input_shape=(stage.image_size, stage.image_size, 1),
        classes=10,
        classifier_activation=None,
        **model_arguments(name, stage),
    )


def sizes(stage, names):
    """Trainable parameters and FLOPs of an image, by arm of a stage."""
    found = {}
    for name in names:
        total = analyze(build(name, stage)).total
        found[name] = {x: total(x) for x in ("parameters", "flops")}
        tf.keras.backend.clear_session()
    return found


def record_times(recorder, stage_name, stage, names, seconds):
    """Times training steps of arms in turns."""
    functions = {
        name: compiled_steps(build(name, stage), BATCH, stage.image_size)[1]
        for name in names
    }
    for name, taken in timing.turns(functions, seconds * len(names)).items():
        case = {"stage": stage_name, "part": "time", "arm": name}
        recorder.append({**case, "batch": BATCH}, seconds=taken)


def main(arguments=None):
    recorder, options = records.start(
        "fashion",
        __doc__,
        arguments,
        data=DATA,
        stage="look",
        seeds=5,
        jobs=1,
        runs="runs/study",
        times=False,
        seconds=20.0,
    )
    if options.stage not in STAGES:
        raise SystemExit(f"--stage must be one of {', '.join(STAGES)}")
    stage = STAGES[options.stage]
    seeds = {x: y[: options.seeds] for x, y in stage.seeds.items()}
    stage = dataclasses.replace(stage, seeds=seeds)
    names = [name for name in stage.seeds if options.only in name]
    if options.times:
        record_times(recorder, options.stage, stage, names, options.seconds)
        return
    folder = pathlib.Path(options.runs) / options.stage
    split_data(options.data, folder / "data", stage)
    study(recorder, folder, options.stage, stage, names, options.jobs)


if __name__ == "__main__":
    main()
