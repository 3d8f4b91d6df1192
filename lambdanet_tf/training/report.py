"""The report of a run, for people."""

from lambdanet_tf.training.progress import duration


def report(record, data_description, num_parameters, pictures):
    """A run in Markdown.

    Args:
        record: dict. What run.json holds.
        data_description: str.
        num_parameters: int.
        pictures: sequence of (title, file name).

    Returns:
        A text.
    """
    recipe, metrics = record["recipe"], record["metrics"]
    best = metrics["best_epoch"]
    lines = [
        f"# {record['model']['builder']} on {recipe['data']}",
        "",
        f"**{metrics['accuracy']:.2%}** of {metrics['test_images']} test images"
        f" right (top 5: {metrics['top5_accuracy']:.2%}), with the weights of "
        f"epoch {best} of {recipe['epochs']}.",
        "",
        *_table(_results(record, num_parameters)),
        "",
        data_description,
        "The best epoch is chosen by the validation images, never by the test "
        "images."
        if "validation_accuracy" in metrics
        else "The weights are those of the last epoch.",
        "",
    ]
    for title, name in pictures:
        lines += [f"![{title}]({name})", ""]
    fields = [(f"`{k}`", f"`{v}`") for k, v in recipe.items()]
    lines += ["## Recipe", "", *_table(fields)]
    versions = [(name, value) for name, value in record["versions"].items()]
    lines += ["", "## Versions", "", *_table(versions), ""]
    return "\n".join(lines)


def _results(record, num_parameters):
    metrics = record["metrics"]
    rows = [
        ("test accuracy", f"{metrics['accuracy']:.2%}"),
        ("test loss", f"{metrics['loss']:.4f}"),
    ]
    if "validation_accuracy" in metrics:
        rows.append(
            ("validation accuracy", f"{metrics['validation_accuracy']:.2%}")
        )
    return [
        *rows,
        ("parameters", f"{num_parameters:,}"),
        ("training time", duration(metrics["seconds"])),
        ("images per second", f"{metrics['images_per_second']:,.0f}"),
        ("device", metrics["device"]),
        ("seed", record["recipe"]["seed"]),
        ("command", f"`{record['command']}`"),
    ]


def _table(rows):
    return ["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows)]
