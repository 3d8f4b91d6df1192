"""Runs a SavedModel in C++, through the loader that TF Serving itself calls."""

import hashlib
import os
import pathlib
import shutil
import subprocess

import numpy as np
import tensorflow as tf

SOURCE = pathlib.Path(__file__).with_name("serve_check.cc")


def build(folder):
    inputs = SOURCE.read_bytes() + tf.__version__.encode()
    program = folder / hashlib.sha256(inputs).hexdigest()[:16]
    if not program.exists():
        libraries = tf.sysconfig.get_lib()
        # `--no-as-needed`: kernels register themselves, nothing names them.
        # `gold` reads TensorFlow's gigabyte in seconds, if it is there.
        gold = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []
        subprocess.run(
            [
                *("g++", *gold, "-O1", "-w", *tf.sysconfig.get_compile_flags()),
                *(str(SOURCE), "-o", f"{program}.new"),
                *(f"-L{libraries}", f"-Wl,--no-as-needed,-rpath,{libraries}"),
                *("-l:libtensorflow_cc.so.2",),
                *("-l:libtensorflow_framework.so.2",),
            ],
            check=True,
        )
        os.replace(f"{program}.new", program)
    return program


def run(program, model, images, scratch, signature, input_name, output):
    """Runs the program; returns a float32 output, or its error message."""
    images.tofile(scratch / "images.bin")
    arguments = [
        *(program, model, signature, input_name, scratch / "images.bin"),
        *(output, scratch / "output.bin", *images.shape),
    ]
    finished = subprocess.run(
        [*map(str, arguments)], capture_output=True, text=True, check=False
    )
    if finished.returncode:
        return finished.stderr
    numbers = np.fromfile(scratch / "output.bin", np.float32)
    return numbers.reshape(len(images), -1)
