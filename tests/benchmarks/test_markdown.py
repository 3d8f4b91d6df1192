"""Names from outside in reports and model cards: shown, never obeyed."""

import pytest

from lambdanet_tf import runs
from lambdanet_tf.training import report
from lambdanet_tf.training import resolve

pytestmark = pytest.mark.once


def test_a_report_shows_the_names_of_its_images():
    metrics = {
        "accuracy": 0.5, "test_images": 2, "best_epoch": 1, "loss": 1.0,
        "seconds": 1.0, "images_per_second": 5.0, "device": "1 CPU",
    }  # fmt: skip
    recipe = resolve("smoke", {"data": "folder:a|b_<i>"}).to_dict()
    run = runs.Run("finished", "M", {}, ("x",), recipe=recipe, metrics=metrics)
    text = report.report(run, {"data": "no `image`\nof <b>|![x](y)"}, {})
    assert r"# M on folder:a\|b\_\<i\>" in text
    assert r"no \`image\` of \<b\>\|\!\[x\](y)" in text
    assert r"| `data` | `folder:a\|b_<i>` |" in text
