"""Times TensorFlow's programs and PyTorch's layers on one GPU.

    python measure.py gpu_programs.zip gpu.json

It needs JAX, with CUDA for a GPU, and nothing else; PyTorch, timm and
lambda-networks are timed beside the programs where they can be imported. It
downloads nothing. XLA compiles the programs through JAX. Programs of a group
take turns, in random order, and the file is written after every group. What no
time is left for is listed in it as skipped.
"""

import contextlib
import dataclasses
import importlib
import importlib.metadata
import itertools
import json
import os
import pathlib
import random
import statistics
import sys
import time
import zipfile

# Otherwise JAX takes most of the memory, and PyTorch finds none.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

SECONDS = 540  # of all, at most
REPETITIONS = 20
FEW = 3  # repetitions where a call takes longer than LONG
LONG = 1.0  # seconds
SHORTEST = 1e-3  # seconds between two looks at the clock
CALLS = 50  # at most, between two looks


def exported(artifact, inputs, outputs, platforms=None):
    """A program that another one wrote, as `jax.export` has it.

    It knows how to call a module, not how to read one: the artifact takes the
    place of that of a stub with the same arguments.
    """
    stub = jax.export.export(
        jax.jit(lambda *_: tuple(jnp.zeros(x.shape, x.dtype) for x in outputs)),
        platforms=platforms,
    )(*inputs)
    return dataclasses.replace(
        stub,
        fun_name="step",
        mlir_module_serialized=artifact,
        module_kept_var_idx=tuple(range(len(inputs))),
    )


def program(entry, artifact):
    """Compiles a program: a function that runs it, and its temporary bytes."""
    inputs, outputs = (
        [jax.ShapeDtypeStruct(*x) for x in entry[name]]
        for name in ("inputs", "outputs")
    )
    run = jax.jit(exported(artifact, inputs, outputs).call)
    compiled = run.lower(*inputs).compile()
    random = np.random.default_rng(0).random  # in [0, 1): integers become 0
    arguments = [
        jnp.asarray(random(x.shape, np.float32)).astype(x.dtype) for x in inputs
    ]
    temporaries = compiled.memory_analysis().temp_size_in_bytes
    return lambda: compiled(*arguments), temporaries


def seconds_per_call(function, wait, calls):
    """The mean time of some calls, the last one awaited."""
    start = time.perf_counter()
    for _ in range(calls):
        last = function()
    wait(last)
    return (time.perf_counter() - start) / calls


def in_turns(contestants, left):
    """Times functions in turns, each with one that awaits its result."""
    calls, taken = {}, {name: [] for name in contestants}
    for name, (function, wait) in contestants.items():
        for _ in range(2):  # the first may compile or tune
            wait(function())
        once = seconds_per_call(function, wait, 1)
        calls[name] = min(max(round(SHORTEST / once), 1), CALLS)
    order, shuffled = list(contestants), random.Random(0)
    for repetition in range(REPETITIONS):
        if repetition >= FEW and left() < 0:
            break
        shuffled.shuffle(order)
        for name in order:
            if repetition >= FEW and taken[name][0] > LONG:
                continue
            took = seconds_per_call(*contestants[name], calls[name])
            taken[name].append(took)
    return taken


class Peers:
    """Layers and networks of timm and lucidrains, where they are installed."""

    def __init__(self, device):
        self.device, self.versions = device, {}
        for name in ("torch", "timm", "lambda_networks"):
            with contextlib.suppress(ImportError):
                setattr(self, name, importlib.import_module(name))
                self.versions[name] = importlib.metadata.version(name)
        if "torch" in self.versions:
            self.torch.backends.cuda.matmul.allow_tf32 = True  # as XLA does
            self.torch.backends.cudnn.allow_tf32 = True

    def modules(self, entry):
        """The peers' layers or networks of an entry, on the CPU still."""
        found, side = {}, entry["image_size"]
        if "timm" in self.versions and entry["peer"]:
            found["timm"] = self.timm.create_model(entry["peer"])
        if entry["recipe"]:
            return found
        # Both have 4 heads and 16 key channels; a scope of None is global.
        dim, scope = entry["changes"]["filters"], entry["changes"]["scope"]
        if "timm" in self.versions:
            timm_layer = importlib.import_module("timm.layers.lambda_layer")
            found["timm"] = timm_layer.LambdaLayer(
                dim, feat_size=(side, side), r=scope
            )
        if "lambda_networks" in self.versions:
            found["lucidrains"] = self.lambda_networks.LambdaLayer(
                dim, dim_k=16, n=side, r=scope
            )
        return found

    def contestants(self, entry, compiled):
        """Functions for the group of an entry, eager and compiled."""
        found, size = {}, entry["image_size"]
        channels = entry["changes"].get("filters", 3)
        for name, module in self.modules(entry).items():
            module = module.to(self.device).train(entry["training"])
            shape = [entry["batch"], channels, size, size]
            inputs = self.torch.rand(shape, device=self.device)
            made = {"eager": module}
            if compiled:
                made["compiled"] = self.torch.compile(module)
            for kind, run in made.items():
                step = self._step(run, inputs, entry)
                found[f"{name}, {kind}"] = step, self._wait
        return found

    def _step(self, module, inputs, entry):
        torch, training, optimizer = self.torch, entry["training"], None
        inference = torch.inference_mode
        half = self.device, torch.bfloat16, "bfloat16" in entry["precision"]
        if entry["peer"]:
            optimizer = torch.optim.SGD(module.parameters(), 1e-6, momentum=0.9)
        elif training:
            inputs = inputs.requires_grad_()

        def run():
            with inference(not training), torch.autocast(*half):
                outputs = module(inputs)
            if training:
                module.zero_grad(set_to_none=True)
                inputs.grad = None
                torch.square(outputs.float()).sum().backward()
            if optimizer is not None:
                optimizer.step()
            return outputs

        return run

    def _wait(self, _):
        getattr(self.torch, self.device).synchronize()


def measure_group(entries, archive, peers, left):
    """Compiles and times the programs of a group, and their peers.

    `left` returns the share of the time that is left.
    """
    contestants, temporaries, failures = {}, {}, {}

    @contextlib.contextmanager
    def tried(name):
        try:
            yield
        except Exception as error:  # noqa: BLE001 (of any package)
            failures[name] = f"{type(error).__name__}: {error}"[:400]

    for entry in entries:
        name = entry["contestant"]
        with tried(name):
            run, temporaries[name] = program(entry, archive.read(entry["file"]))
            contestants[name] = run, jax.block_until_ready
    first, theirs = entries[0], {}
    with tried("peers"):
        theirs = peers.contestants(first, compiled=left() > 0.5)
    for name, (function, wait) in theirs.items():
        with tried(name):
            wait(function())
            contestants[name] = function, wait
    lines = [
        {
            "contestant": name,
            "temporaries": temporaries.get(name),
            "median": statistics.median(times),
            "fastest": min(times),
            "slowest": max(times),
        }
        for name, times in in_turns(contestants, left).items()
    ]
    kept = ("recipe", "changes", "image_size", "batch", "training")
    return {
        **{name: first[name] for name in kept},
        "bfloat16": "bfloat16" in first["precision"],
        "lines": lines,
        "failures": failures,
    }


def main(programs, path):
    jax.config.update("jax_enable_x64", True)  # counters of steps are int64
    peers = Peers("cpu" if jax.default_backend() == "cpu" else "cuda")
    machine = {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "packages": peers.versions,
    }
    results = {"machine": machine, "groups": {}, "skipped": []}
    begin, longest = time.monotonic(), 0.0

    def left():
        return 1 - (time.monotonic() - begin) / SECONDS

    with zipfile.ZipFile(programs) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        for name, entries in itertools.groupby(manifest, lambda x: x["group"]):
            # As long as the longest so far may the next one take.
            start = left()
            if start < longest:
                results["skipped"].append(name)
            else:
                results["groups"][name] = measure_group(
                    list(entries), archive, peers, left
                )
                longest = max(longest, start - left())
                print(name, flush=True)
                jax.clear_caches()
            pathlib.Path(path).write_text(json.dumps(results))
    print(f"{len(results['groups'])} groups, {len(results['skipped'])} skipped")


if __name__ == "__main__":
    main(*sys.argv[1:])
