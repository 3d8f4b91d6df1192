"""Exports run in C++, through the loader that TF Serving itself calls."""

import shutil

import numpy as np
import pytest

from tests.support import serve_check
from tests.support.serving_run import SHAPE

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        shutil.which("g++") is None, reason="needs a C++ compiler, g++"
    ),
]


@pytest.mark.slow
def test_an_export_runs_in_cc_with_xla_off(
    small_run, small_export, pytestconfig, tmp_path, rng
):
    program = serve_check.build(pytestconfig.cache.mkdir("serve_check"))
    images = rng.uniform(0, 255, (3, *SHAPE)).astype(np.float32)

    def outputs(images, signature="serving_default", output="probabilities"):
        return serve_check.run(
            program, small_export, images, tmp_path, signature, "images", output
        )

    wanted = small_run[1].predict(images, verbose=0)
    np.testing.assert_allclose(outputs(images), wanted, rtol=1e-4, atol=1e-7)
    assert outputs(images, "features", "features").shape == (3, 32)
    assert "not finite" in outputs(images * np.nan)
    assert "run: " in outputs(images[:, :5])
    assert "at least one image" in outputs(images[:0])
    # What a server without XLA cannot run does not keep it from loading.
    assert "run: " in outputs(images, "serving_default_xla")
