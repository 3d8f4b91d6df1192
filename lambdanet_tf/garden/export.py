"""Exports a SavedModel: the Model Garden's own command.

    python -m lambdanet_tf.garden.export --experiment=NAME --config_file=...

Our backbones and experiments are already registered when it runs.
`--help` lists the flags.
"""

import runpy

if __name__ == "__main__":
    runpy.run_module(
        "official.vision.serving.export_saved_model", run_name="__main__"
    )
