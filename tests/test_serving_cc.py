"""Exports run in C++, through the loader that TF Serving itself calls."""

import hashlib
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from tests.serving_run import SHAPE

SOURCE = pathlib.Path(__file__).with_name("serve_check.cc")

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="needs a C++ compiler, g++"
)


@pytest.fixture(scope="module")
def serve_check(pytestconfig):
    """The program, built against the libraries of the TensorFlow wheel.

    Building takes 20 seconds, so it is kept for the next run of the tests.
    """
    inputs = SOURCE.read_bytes() + tf.__version__.encode()
    folder = pytestconfig.cache.mkdir("serve_check")
    program = folder / hashlib.sha256(inputs).hexdigest()[:16]
    if not program.exists():
        libraries = tf.sysconfig.get_lib()
        # `--no-as-needed`: kernels register themselves, nothing names them.
        subprocess.run(
            [
                *("g++", "-O1", "-w", *tf.sysconfig.get_compile_flags()),
                *(str(SOURCE), "-o", f"{program}.new"),
                *(f"-L{libraries}", f"-Wl,--no-as-needed,-rpath,{libraries}"),
                *("-l:libtensorflow_cc.so.2",),
                *("-l:libtensorflow_framework.so.2",),
            ],
            check=True,
        )
        os.replace(f"{program}.new", program)
    return program


def run(program, folder, images, scratch, signature, output):
    """Runs the program; returns the output, or its error message."""
    images.tofile(scratch / "images.bin")
    arguments = [
        *(program, folder, signature, "images", scratch / "images.bin"),
        *(output, scratch / "output.bin", *images.shape),
    ]
    finished = subprocess.run(
        [str(argument) for argument in arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        return finished.stderr
    numbers = np.fromfile(scratch / "output.bin", np.float32)
    return numbers.reshape(len(images), -1)


def test_an_export_runs_in_cc_with_xla_off(
    serve_check, small_run, small_export, tmp_path, rng
):
    images = rng.uniform(0, 255, (3, *SHAPE)).astype(np.float32)

    def outputs(images, signature="serving_default", output="probabilities"):
        return run(
            serve_check, small_export, images, tmp_path, signature, output
        )

    wanted = small_run[1].predict(images, verbose=0)
    np.testing.assert_allclose(outputs(images), wanted, rtol=1e-4, atol=1e-7)
    assert outputs(images, "features", "features").shape == (3, 32)
    assert "not finite" in outputs(images * np.nan)
    assert "run: " in outputs(images[:, :5])
    assert "at least one image" in outputs(images[:0])
    # What a server without XLA cannot run does not keep it from loading.
    assert "run: " in outputs(images, "serving_default_xla")
