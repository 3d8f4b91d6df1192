"""What a server sees: SavedModels with named signatures, and their proof."""

from lambdanet_tf.serving.checking import ExportCheck
from lambdanet_tf.serving.checking import SignatureCheck
from lambdanet_tf.serving.checking import answer_in_fresh_process
from lambdanet_tf.serving.checking import check_export
from lambdanet_tf.serving.checking import images_for
from lambdanet_tf.serving.exporting import export_model
from lambdanet_tf.serving.exporting import export_run
from lambdanet_tf.serving.exporting import options_of
from lambdanet_tf.serving.exporting import read_description
from lambdanet_tf.serving.folding import fold_batch_norm
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.options import ServingOptions
from lambdanet_tf.serving.predicting import prediction_table
from lambdanet_tf.serving.run_folder import Run
from lambdanet_tf.serving.run_folder import newest_finished_run
from lambdanet_tf.serving.run_folder import read_run
from lambdanet_tf.serving.run_folder import trained_model
from lambdanet_tf.serving.version_folders import newest_export

__all__ = [
    "ExportCheck",
    "Inference",
    "Run",
    "ServingOptions",
    "SignatureCheck",
    "answer_in_fresh_process",
    "check_export",
    "export_model",
    "export_run",
    "fold_batch_norm",
    "images_for",
    "newest_export",
    "newest_finished_run",
    "options_of",
    "prediction_table",
    "read_description",
    "read_run",
    "trained_model",
]
