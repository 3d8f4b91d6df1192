"""Trains on the pictures of a microscope, as somebody new would, by command.

    python -m benchmarks.studies.own_pictures                  ten minutes
    python -m benchmarks.studies.own_pictures --epochs 1       a first look

400 drawn cells of five classes, 150 to 30 of each, gray on dark, 96 pixels:
half of the files are JPEG, a quarter is TIFF of 8 bits, a quarter TIFF of 12
bits in 16. `train.py --data folder:...` splits them. The first case has the
strides that the recipe `images` once put onto each network.
"""

import json
import pathlib

import numpy as np

from benchmarks import records
from benchmarks.studies import digits
from benchmarks.studies import runs
from lambdanet_tf import training
from lambdanet_tf.environment import require

SIZE = 96
COUNTS = {"round": 150, "rod": 100, "ring": 70, "dividing": 50, "star": 30}
EPOCHS = training.resolve("images").epochs
FORMER = {"strides": [2, 2, 2], "stem_strides": [2]}
CASES = {
    "strides for photographs, files as they are": ("", FORMER),
    "files as they are": ("", {}),
    "`bits=12`, as the warning says": (",bits=12", {}),
}


def cell(kind, generator):
    """Draws a cell, float `(SIZE, SIZE)` in [0, 1]."""
    middle = generator.uniform(0.35, 0.65, (2, 1, 1)) * SIZE
    y, x = np.mgrid[:SIZE, :SIZE] - middle
    angle, radius = generator.uniform(0, 2 * np.pi), generator.uniform(10, 18)
    u = (x * np.cos(angle) + y * np.sin(angle)) / radius
    v = (y * np.cos(angle) - x * np.sin(angle)) / radius
    distance = np.hypot(u, v)
    if kind == "rod":
        distance = np.hypot(u / 1.7, v / 0.6)
    elif kind == "ring":
        distance = 1.6 * np.abs(distance - 0.75) + 0.4
    elif kind == "dividing":
        distance = np.hypot(np.abs(u) - 0.75, v) / 0.75
    elif kind == "star":
        distance /= 1 + 0.35 * np.cos(5 * np.arctan2(v, u))
    bright = generator.uniform(0.25, 0.8) / (1 + np.exp(12 * (distance - 1)))
    slope = (x * generator.uniform(-1, 1) + y * generator.uniform(-1, 1)) / SIZE
    noise = generator.normal(0, 0.06, x.shape)
    return np.clip(0.12 + bright + 0.08 * slope + noise, 0, 1)


def write(folder):
    """Writes the pictures in a folder for each class, unless it is there."""
    pillow = require("PIL.Image", extra="data")
    generator = np.random.default_rng(0)
    for kind, count in COUNTS.items() if not folder.exists() else ():
        (folder / kind).mkdir(parents=True)
        for number in range(count):
            pixels, name = cell(kind, generator), f"{kind}/{number:03}"
            if number % 4 == 3:
                deep = np.round(pixels * 4095).astype(np.uint16)
                pillow.fromarray(deep).save(folder / f"{name}.tif")
            else:
                name += ".tif" if number % 4 == 2 else ".jpg"
                flat = np.round(pixels * 255).astype(np.uint8)
                pillow.fromarray(flat).save(folder / name)


@records.script("own_pictures", epochs=EPOCHS, runs="runs/own_pictures")
def main(recorder, options):
    base = pathlib.Path(options.runs)
    write(base / "pictures")

    def measure(case):
        name, (suffix, arguments) = case["name"], CASES[case["name"]]
        folder = base / f"{[*CASES].index(name)}-{case['epochs']}"
        flags = ["--data", f"folder:{base / 'pictures'}{suffix}"]
        if arguments:
            flags += ["--model-arguments", json.dumps(arguments)]
        seconds = digits.command(folder, 0, case["epochs"], *flags)
        return {**runs.metrics(folder), "whole_seconds": seconds}

    cases = records.cases(name=[*CASES], epochs=[options.epochs])
    recorder.fill(cases, measure)
