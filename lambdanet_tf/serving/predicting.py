"""Predictions of an export for the held-out images that it carries."""

from lambdanet_tf.serving import exporting
from lambdanet_tf.serving.checking import answer_in_fresh_process


def prediction_table(folder):
    """Classifies the images of an export in a fresh process.

    Args:
        folder: the version folder.

    Returns:
        Lines of text: label, prediction and probability of each image.

    Raises:
        ValueError: if the export carries no images.
        RuntimeError: if it does not load or refuses them.
    """
    examples = exporting.read_examples(folder)
    if examples is None:
        raise ValueError(
            "`folder` must carry held-out images, as exports of runs do. "
            f"Received {folder}, which has none."
        )
    classes = exporting.read_description(folder)["labels"]
    images, labels = examples
    calls = [("serving_default", {"images": images})]
    [(_, answer)] = answer_in_fresh_process(folder, calls)
    if "error" in answer:
        raise RuntimeError(f"{folder}: {answer['error']}")
    lines = [f"{'label':>12}  {'prediction':>12}  probability"]
    rows = zip(labels, answer["classes"], answer["probabilities"], strict=True)
    for label, prediction, probabilities in rows:
        lines.append(
            f"{classes[label]:>12}  {classes[prediction]:>12}  "
            f"{probabilities[prediction]:11.3f}"
            + ("" if label == prediction else "   wrong")
        )
    return "\n".join(lines)
