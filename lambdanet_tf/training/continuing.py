"""Whether a run that stopped can go on here."""

import os

from lambdanet_tf.training import overrides
from lambdanet_tf.training.recipes import Recipe
from lambdanet_tf.training.runs import keras_version


def check_continues(record, recipe, run):
    """Raises unless a recipe goes on with the run of a folder.

    Args:
        record: dict. What the run's run.json holds.
        recipe: `Recipe`.
        run: str. The run folder, for messages.

    Raises:
        ValueError: if the run is of another recipe or Keras, or has failed.
    """
    recorded = overrides.replace(Recipe(), record["recipe"])
    check_same_recipe(recorded, recipe, run)
    check_same_keras(record, run)
    check_not_failed(record, run)


def check_same_recipe(recorded, asked, run):
    """Raises a ValueError that names the fields in which recipes differ."""
    before, now = recorded.to_dict(), asked.to_dict()
    changed = [
        f"{name} is {before[name]!r}, not {now[name]!r}"
        for name in before
        if before[name] != now[name]
    ]
    if changed:
        raise ValueError(
            f"{run} was begun with another recipe: {'; '.join(changed)}. "
            "Continue it without these changes, or choose another folder."
        )


def check_same_keras(record, run):
    """A checkpoint is of one Keras; only its weights move to the other."""
    was_legacy = record["versions"]["keras"].startswith("tf_keras")
    if was_legacy != keras_version().startswith("tf_keras"):
        value = "1" if was_legacy else "0"
        raise ValueError(
            f"{run} was begun with {record['versions']['keras']}. Continue it "
            f"with the environment variable TF_USE_LEGACY_KERAS={value}."
        )


def check_not_failed(record, run):
    """A run whose loss was no number would fail again."""
    if record["status"] == "failed":
        reason = record["metrics"].get("reason", "")
        raise ValueError(
            f"{run} has failed and would fail again. {reason} Begin a new "
            f"run: --recipe-file {os.path.join(run, 'run.json')}"
        )
