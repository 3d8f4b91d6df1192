"""Exports run in C++, through the loader that TF Serving itself calls."""

import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from tests.serving_run import write_run

SOURCE = pathlib.Path(__file__).with_name("serve_check.cc")

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="needs a C++ compiler, g++"
)


@pytest.fixture(scope="module")
def serve_check(tmp_path_factory):
    """The program, built against the libraries of the TensorFlow wheel."""
    program = tmp_path_factory.mktemp("cc") / "serve_check"
    libraries = tf.sysconfig.get_lib()
    # `--no-as-needed`: the kernels register themselves, nothing names them.
    subprocess.run(
        [
            *("g++", "-O1", "-w", *tf.sysconfig.get_compile_flags()),
            *(str(SOURCE), "-o", str(program)),
            *(f"-L{libraries}", f"-Wl,--no-as-needed,-rpath,{libraries}"),
            *("-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
        ],
        check=True,
    )
    return program


def answer(program, folder, images, scratch, signature, output):
    """Runs the program; returns its answer, or what it complained about."""
    images.tofile(scratch / "images.bin")
    arguments = [
        *(program, folder, signature, "images", scratch / "images.bin"),
        *(output, scratch / "answer.bin", *images.shape),
    ]
    finished = subprocess.run(
        [str(argument) for argument in arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        return finished.stderr
    numbers = np.fromfile(scratch / "answer.bin", np.float32)
    return numbers.reshape(len(images), -1)


def test_an_export_runs_in_cc_with_xla_off(serve_check, tmp_path, rng):
    run, model = write_run(tmp_path / "20250101-000000")
    options = serving.options_of(serving.read_run(run), xla=True)
    folder = serving.export_run(run, tmp_path / "exported", options=options)
    images = rng.uniform(0, 255, (3, 8, 7, 1)).astype(np.float32)

    def ask(images, signature="serving_default", output="probabilities"):
        return answer(serve_check, folder, images, tmp_path, signature, output)

    wanted = model.predict(images, verbose=0)
    np.testing.assert_allclose(ask(images), wanted, rtol=1e-4, atol=1e-7)
    assert ask(images, "features", "features").shape == (3, 32)
    assert "not finite" in ask(images * np.nan)
    assert "run: " in ask(images[:, :5])
    assert "at least one image" in ask(images[:0])
    # What a server without XLA cannot run does not keep it from loading.
    assert "run: " in ask(images, "serving_default_xla")
