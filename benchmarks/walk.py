"""How far one walks through the files to read what the package does.

    python -m benchmarks.walk layer
    python -m benchmarks.walk run --recipe smoke --run-dir runs/walk
    python -m benchmarks.walk export --run-dir runs/walk

The first call of each function of the package is noted, in order. Calls that
follow each other in one file are one stay; a return is a stay in a file that
was left before. The longest chain of calls is told by its files, too. The walk
of a layer begins at `LambdaLayer.__call__`. Those of a run, of an image within
it, and of an export leave out the files of layers and networks.
"""

import argparse
import itertools
import pathlib
import sys
import threading

PACKAGE = pathlib.Path(__file__).parents[1] / "lambdanet_tf"
# Lower floors, and checks that everybody calls.
LEFT_OUT = (
    *("analysis/", "convert/", "layers/", "models/", "ops/", "specs/"),
    *("arguments", "environment", "lazy"),
)
# The files that an image goes through, from a source to a batch.
OF_IMAGES = ("data/", "training/batches")
_IS_FUNCTION = 0x2  # of a code object's flags: neither a class nor a module


class Walk:
    """Notes the first call of every function of the package.

    Attributes:
        calls: (file, name) of each function, in the order of its first call;
            files relative to the package.
        chain: the files of the chain of calls that goes through the most.
    """

    def __init__(self):
        self._seen, self.calls, self.chain = set(), [], []

    def __enter__(self):
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exception):
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame, event, _):
        code = frame.f_code
        if event != "call" or code in self._seen:
            return
        self._seen.add(code)
        file = _file_of(code)
        if file:
            self.calls.append((file, code.co_name))
            self.chain = max(self.chain, _chain(frame), key=len)


def _file_of(code):
    """The file of a function of the package; None for all else."""
    path = pathlib.Path(code.co_filename)
    is_function = code.co_flags & _IS_FUNCTION and code.co_name[0] != "<"
    if is_function and path.is_relative_to(PACKAGE):
        return path.relative_to(PACKAGE).as_posix()
    return None


def _chain(frame):
    """The files of the calls that led to a frame, each once."""
    files = []
    while frame is not None:
        file = _file_of(frame.f_code)
        if file and file not in files:
            files.insert(0, file)
        frame = frame.f_back
    return files


def stays(calls):
    """Returns pairs of a file and the names of what is called there."""
    return [
        (file, [name for _, name in group])
        for file, group in itertools.groupby(calls, lambda call: call[0])
    ]


def layer_walk(**arguments):
    """Returns the walk of a layer's call to the numbers, and its chain."""
    import tensorflow as tf  # noqa: PLC0415

    from lambdanet_tf import layers  # noqa: PLC0415

    layer = layers.LambdaLayer(8, num_heads=2, key_dim=4, **arguments)
    inputs = tf.ones([2, 28, 28, 8])
    layer.build(inputs.shape)
    with Walk() as walk:
        layer(inputs)
    return {"layer": walk.calls}, walk.chain


def command_walk(command, flags):
    """Returns the walks of a command of the command line, and its chain."""
    from lambdanet_tf import cli  # noqa: PLC0415

    with Walk() as walk:
        cli.main(["train" if command == "run" else command, *flags])
    walks = {command: [c for c in walk.calls if not c[0].startswith(LEFT_OUT)]}
    if command == "run":
        walks["image"] = [c for c in walk.calls if c[0].startswith(OF_IMAGES)]
    return walks, walk.chain


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("walk", choices=("layer", "run", "export"))
    parser.add_argument("--list", action="store_true", help="print every stay")
    options, flags = parser.parse_known_args(arguments)
    if options.walk == "layer":
        walks, chain = layer_walk()
    else:
        walks, chain = command_walk(options.walk, flags)
    for name, calls in walks.items():
        visited = stays(calls)
        if options.list:
            for file, functions in visited:
                print(f"{file}: {', '.join(functions)}")
        files = len({file for file, _ in visited})
        print(
            f"{name}: {len(visited)} stays in {files} files, "
            f"{len(visited) - files} returns"
        )
    print(f"longest chain of calls: {len(chain)} files, {' > '.join(chain)}")


if __name__ == "__main__":
    main()
