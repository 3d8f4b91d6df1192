"""What a server sees: SavedModels with named signatures, and their proof."""

from lambdanet_tf.serving.checking import answer_in_fresh_process
from lambdanet_tf.serving.checking import compare
from lambdanet_tf.serving.checking import comparison_table
from lambdanet_tf.serving.checking import images_for
from lambdanet_tf.serving.exporting import export_model
from lambdanet_tf.serving.exporting import export_run
from lambdanet_tf.serving.exporting import logits_model
from lambdanet_tf.serving.predicting import prediction_table
from lambdanet_tf.serving.run_folder import Run
from lambdanet_tf.serving.run_folder import newest_finished_run
from lambdanet_tf.serving.run_folder import read_run
from lambdanet_tf.serving.version_folders import newest_export

__all__ = [
    "Run",
    "answer_in_fresh_process",
    "compare",
    "comparison_table",
    "export_model",
    "export_run",
    "images_for",
    "logits_model",
    "newest_export",
    "newest_finished_run",
    "prediction_table",
    "read_run",
]
