"""Names from outside in reports and model cards: shown, never obeyed."""

import pytest

from lambdanet_tf import markdown
from lambdanet_tf import runs
from lambdanet_tf.serving import model_card
from lambdanet_tf.training import report
from lambdanet_tf.training import resolve

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a plain name, 3.5 %", "a plain name, 3.5 %"),
        ("two\nlines", "two lines"),
        ("a|b", r"a\|b"),
        ("*bold* _slanted_", r"\*bold\* \_slanted\_"),
        ("![cat](http://x/y)", r"\!\[cat\](http://x/y)"),
        ("<script>&amp;", r"\<script\>\&amp;"),
        ("`code` ~~gone~~ #1", r"\`code\` \~\~gone\~\~ \#1"),
        ("back\\slash", r"back\\slash"),
    ],
)
def test_a_name_is_shown_as_it_is(text, shown):
    assert markdown.escape(text) == shown
    assert markdown.table([(markdown.escape(text),)], ("",)).endswith(
        f"| {shown} |"
    )


def test_code_ends_where_it_should():
    assert markdown.code("--name x") == "`--name x`"
    assert markdown.code("a ``b`` c") == "``` a ``b`` c ```"


def test_a_cell_stays_a_cell():
    lines = markdown.table([("a|b", "c\nd")]).splitlines()
    assert lines == ["|  |  |", "| --- | --- |", r"| a\|b | c d |"]


def test_a_report_shows_the_names_of_its_images():
    metrics = {
        "accuracy": 0.5, "test_images": 2, "best_epoch": 1, "loss": 1.0,
        "seconds": 1.0, "images_per_second": 5.0, "device": "1 CPU",
    }  # fmt: skip
    recipe = resolve("smoke", {"data": "folder:a|b_<i>"}).to_dict()
    run = runs.Run("finished", "M", {}, ("x",), recipe=recipe, metrics=metrics)
    text = report.report(run, {"data": "no image of <b>|x"}, {})
    assert r"# M on folder:a\|b\_\<i\>" in text
    assert r"no image of \<b\>\|x" in text
    assert r"| `data` | `folder:a\|b_<i>` |" in text


def test_a_model_card_shows_the_names_of_its_classes():
    text = model_card._intended_use(("a|b", "![c](d)"), {})
    assert r"into 2 classes: a\|b, \!\[c\](d)." in text
