"""Memory: what plans promise, what a served export takes, the size of files."""

from benchmarks import views
from benchmarks.serving.formats import EPOCHS
from benchmarks.serving.formats import FORMATS

served = views.table(
    "serving.md#memory",
    "serving_memory",
    {"LambdaResNet-50 at 224 px": "{moment}", "MiB": "{mebibytes:.0f}"},
    where=lambda row: row.export == "LambdaResNet50",
)


@views.view("serving.md#formats")
def formats(found):
    """Accuracy and size of a network of the digits, by format."""
    cells = {}
    for row in (row for row in found["formats"] if row.epochs == EPOCHS):
        accuracy = f"accuracy, {row.test_images} test images"
        for head, name in {"Keras": "Keras", **FORMATS}.items():
            text = views.text(row.accuracies[name], ".2f/%")
            cells[accuracy, head] = f"{text} %"
            size = views.text(row.bytes.get(name), ".2f/MiB")
            cells["size, MiB", head] = size
    return views.crossed(cells, "")
