"""The benchmark of Table 4: what it compiles, and how it finds what fits."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from benchmarks import attention
from lambdanet_tf.environment import KERAS_3


@pytest.mark.parametrize("name", ["axial attention", "lambda, shared"])
def test_a_step_has_the_gradients_of_a_stage(name, rng):
    case = attention.Case(batch=2, side=3, filters=16, layers=2)
    step = attention.training_step(name, case, jit_compile=False)
    gradients = step(tf.constant(rng.normal(size=case.shape), tf.float32))
    # Four layers of three projections and a table; two of three projections,
    # two normalizations and one table.
    assert len(gradients) == 1 + (16 if name == "axial attention" else 15)
    assert all(gradient is not None for gradient in gradients)


@pytest.mark.parametrize("constant", [0, 5, 90])
def test_the_largest_batch_that_fits(constant):
    def used(batch):
        return constant + 7 * batch + (3 if batch % 5 else 0)

    expected = max(batch for batch in range(99) if used(batch) <= 100)
    assert attention.largest_batch(used, 100) == expected


@pytest.mark.slow
@pytest.mark.skipif(not KERAS_3, reason="a process of its own")
def test_the_compiler_counts_bytes(tmp_path):
    # Of a product: two matrices and the result. Pointers: some bytes more.
    code = (
        "import tensorflow as tf\n"
        "from benchmarks.attention import Compiler\n"
        f"compiler = Compiler({str(tmp_path)!r})\n"
        "function = tf.function(lambda x: x @ x, jit_compile=True)\n"
        "for n in (64, 1024):\n"
        "    print(compiler.bytes_of(function, [n, n]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    for n, size in zip((64, 1024), done.stdout.split(), strict=True):
        assert 2 * 4 * n**2 <= int(size) <= 2 * 4 * n**2 + 4096
