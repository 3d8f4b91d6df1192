"""What a run needs before anything is built: packages, file systems."""

from collections.abc import Callable
from typing import Any

from lambdanet_tf.environment import is_there
from lambdanet_tf.environment import require_all
from lambdanet_tf.files import check_file_system
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.options import number_of_workers
from lambdanet_tf.training.recipe import Recipe


def check_prerequisites(
    recipe: Recipe,
    options: RunOptions,
    needs_data: bool = True,
    print_fn: Callable[[str], Any] = print,
) -> None:
    """Raises unless the packages and file systems of a run are there.

    Without matplotlib a run makes no pictures, which is said.

    Args:
        recipe: of the run.
        options: of the run.
        needs_data: whether the images must be there; a dry run does without.
        print_fn: shows a line of text.

    Raises:
        ImportError: naming all packages that are missing, and their extras.
        ValueError: naming a path whose file system TensorFlow does not know, or
            what is wrong with TF_CONFIG.
    """
    number_of_workers()  # Where TF_CONFIG is wrong, that is said at once.
    needed = {}
    if needs_data and recipe.data == "digits":
        needed["sklearn"] = "data"
    if needs_data and recipe.data.startswith("tfds:"):
        needed["tensorflow_datasets"] = "tfds"
    if recipe.randaugment_layers:
        needed["official"] = "garden"
    require_all(needed)
    _, _, place = recipe.data.partition(":")
    for path in (
        options.run_dir,
        options.runs_dir,
        options.data_dir,
        recipe.initial_weights,
        recipe.pseudo_labels,
        place,
    ):
        check_file_system(path)
    if not has_pictures():
        print_fn(
            "matplotlib is not installed: the run makes no pictures. It comes "
            'with the extra `plot`: pip install "lambdanet-tf[plot]".'
        )


def has_pictures() -> bool:
    """Returns whether pictures can be drawn."""
    return is_there("matplotlib")
