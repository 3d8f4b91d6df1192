"""Trains and evaluates: the Model Garden's own command.

    python -m lambdanet_tf.garden.train --experiment=NAME --mode=MODE ...

Our backbones and experiments are already registered when it runs.
`--help` lists the flags.
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("official.vision.train", run_name="__main__")
