"""Times TensorFlow's programs and PyTorch's layers on one GPU.

    python measure.py gpu_programs.zip gpu.json

It needs JAX, with CUDA for a GPU, and nothing else; PyTorch, timm and
lambda-networks are timed beside the programs where they can be imported. It
downloads nothing. XLA compiles the programs through JAX. Programs of a group
take turns, in random order, and the file is written after every group. What no
time is left for is listed in it as skipped.
"""

import argparse
import contextlib
import dataclasses
import importlib
import importlib.util
import json
import os
import pathlib
import platform
import random
import statistics
import sys
import time
import types
import zipfile

# Otherwise JAX takes most of the memory, and PyTorch finds none.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

SHORTEST = 1e-3  # seconds between two looks at the clock
CALLS = 50  # at most, between two looks
FEW = 3  # repetitions where a call takes longer than LONG
LONG = 1.0  # seconds


def program(entry, artifact):
    """Compiles a program; returns a function that runs it, and facts."""
    start = time.monotonic()
    inputs = [jax.ShapeDtypeStruct(*x) for x in entry["inputs"]]
    outputs = [jax.ShapeDtypeStruct(*x) for x in entry["outputs"]]
    # `jax.export` knows how to call a module, not how to read one that
    # another program wrote: it takes the place of that of a stub.
    stub = jax.export.export(
        jax.jit(lambda *_: tuple(jnp.zeros(x.shape, x.dtype) for x in outputs))
    )(*inputs)
    exported = dataclasses.replace(
        stub,
        mlir_module_serialized=artifact,
        module_kept_var_idx=tuple(range(len(inputs))),
    )
    compiled = jax.jit(exported.call).lower(*inputs).compile()
    facts = {
        "compile_seconds": time.monotonic() - start,
        "temporaries": compiled.memory_analysis().temp_size_in_bytes,
    }
    arguments = [_random(x, seed) for seed, x in enumerate(inputs)]
    return lambda: compiled(*arguments), facts


def _random(spec, seed):
    """Numbers in [0, 1), or zeros where they are integers."""
    if not jnp.issubdtype(spec.dtype, jnp.floating):
        return jnp.zeros(spec.shape, spec.dtype)
    numbers = np.random.default_rng(seed).random(spec.shape, np.float32)
    return jax.device_put(jnp.asarray(numbers, spec.dtype))


def seconds_per_call(function, wait, calls):
    """The mean time of some calls, the last one awaited."""
    start = time.perf_counter()
    for _ in range(calls):
        last = function()
    wait(last)
    return (time.perf_counter() - start) / calls


def in_turns(contestants, repetitions, left):
    """Times functions in turns, each with one that awaits its result."""
    calls, taken = {}, {name: [] for name in contestants}
    for name, (function, wait) in contestants.items():
        for _ in range(2):  # the first may compile or tune
            wait(function())
        once = seconds_per_call(function, wait, 1)
        calls[name] = min(max(round(SHORTEST / once), 1), CALLS)
    order, shuffled = list(contestants), random.Random(0)
    for repetition in range(repetitions):
        if repetition >= FEW and left() < 0:
            break
        shuffled.shuffle(order)
        for name in order:
            if repetition >= FEW and taken[name][0] > LONG:
                continue
            function, wait = contestants[name]
            taken[name].append(seconds_per_call(function, wait, calls[name]))
    return {
        name: {
            "median": statistics.median(times),
            "fastest": min(times),
            "slowest": max(times),
            "repetitions": len(times),
        }
        for name, times in taken.items()
    }


class Peers:
    """Layers and networks of timm and lucidrains, where they are installed."""

    def __init__(self, device):
        self.device = device
        self.versions, self.failures = {}, {}
        self.timm = self.lucidrains = None
        self.torch = self._module("torch")
        if self.torch is not None:
            self.torch.backends.cuda.matmul.allow_tf32 = True  # as XLA does
            self.torch.backends.cudnn.allow_tf32 = True
            self.timm = self._timm_layer()
            self.lucidrains = self._module("lambda_networks")

    def _module(self, name):
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            self.failures[name] = str(error)
            return None
        self.failures.pop(name, None)
        package = importlib.import_module(name.partition(".")[0])
        self.versions[package.__name__] = getattr(package, "__version__", "?")
        return module

    def _timm_layer(self):
        """The module alone where there is no torchvision for all of timm."""
        name = "timm.layers.lambda_layer"
        module, spec = self._module(name), importlib.util.find_spec("timm")
        if module is not None or spec is None:
            return module
        root = pathlib.Path(spec.origin).parent
        folders = {"timm": root, "timm.layers": root / "layers"}
        for package, folder in folders.items():
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = [str(folder)]
        return self._module(name)

    def modules(self, entry):
        """The peers' layers or networks of an entry, on the CPU still."""
        found, layer = {}, entry["layer"]
        if entry["peer"] and hasattr(sys.modules.get("timm"), "create_model"):
            found["timm"] = sys.modules["timm"].create_model(entry["peer"])
        if layer is None:
            return found
        dim, scope, side = map(layer.get, ("filters", "scope", "image_size"))
        if self.timm is not None:
            where = {} if scope else {"feat_size": (side, side)}
            found["timm"] = self.timm.LambdaLayer(
                dim, num_heads=4, dim_head=16, r=scope, **where
            )
        if self.lucidrains is not None:
            where = {"r": scope} if scope else {"n": side}
            sizes = {"dim": dim, "dim_out": dim, "dim_k": 16, "dim_u": 1}
            found["lucidrains"] = self.lucidrains.LambdaLayer(
                heads=4, **sizes, **where
            )
        return found

    def contestants(self, entry, compiled):
        """Functions for the group of an entry, eager and compiled."""
        found, size = {}, entry["image_size"]
        channels = entry["layer"]["filters"] if entry["layer"] else 3
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
        torch = self.torch
        optimizer = None
        if entry["peer"]:
            optimizer = torch.optim.SGD(module.parameters(), 1e-6, momentum=0.9)
        elif entry["training"]:
            inputs = inputs.requires_grad_()

        def precision():
            if not entry["bfloat16"]:
                return contextlib.nullcontext()
            return torch.autocast(self.device, dtype=torch.bfloat16)

        def run():
            if not entry["training"]:
                with torch.inference_mode(), precision():
                    return module(inputs)
            module.zero_grad(set_to_none=True)
            inputs.grad = None
            with precision():
                outputs = module(inputs)
            torch.square(outputs.float()).sum().backward()
            if optimizer is not None:
                optimizer.step()
            return outputs

        return run

    def _wait(self, _):
        if self.device == "cuda":
            self.torch.cuda.synchronize()


def measure_group(entries, archive, peers, repetitions, left):
    """Compiles and times the programs of a group, and their peers.

    `left` returns the share of the time that is left.
    """
    contestants, facts, failures = {}, {}, {}

    @contextlib.contextmanager
    def tried(name):
        try:
            yield
        except Exception as error:  # noqa: BLE001 (of any package)
            failures[name] = f"{type(error).__name__}: {error}"[:400]

    for entry in entries:
        name = entry["contestant"]
        with tried(name):
            function, facts[name] = program(entry, archive.read(entry["file"]))
            contestants[name] = function, jax.block_until_ready
    first, theirs = entries[0], {}
    with tried("peers"):
        theirs = peers.contestants(first, compiled=left() > 0.5)
    for name, (function, wait) in theirs.items():
        with tried(name):
            wait(function())
            contestants[name] = function, wait
    times = in_turns(contestants, repetitions, left)
    lines = [
        {"contestant": name, **facts.get(name, {}), **figures}
        for name, figures in times.items()
    ]
    kept = ("layer", "peer", "batch", "training", "bfloat16", "image_size")
    return {
        **{name: first[name] for name in kept},
        "operations": {x["contestant"]: x["operations"] for x in entries},
        "lines": lines,
        "failures": failures,
    }


def machine(peers):
    """What it ran on."""
    device = jax.devices()[0]
    return {
        "backend": jax.default_backend(),
        "device": device.device_kind,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "packages": peers.versions,
        "missing": peers.failures,
    }


def groups(manifest):
    """The lines of each group, in the order in which they are timed.

    Networks come after the first layers, so that a short run has both.
    """
    found = {}
    for entry in manifest:
        found.setdefault(entry["group"], []).append(entry)
    layers = [name for name, (entry, *_) in found.items() if entry["layer"]]
    networks = [name for name in found if name not in layers]
    order = [*layers[:4], *networks, *layers[4:]]
    return {name: found[name] for name in order}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs", help="the file of benchmarks.gpu.lower")
    parser.add_argument("results", help="the file to write")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)  # counters of steps are int64
    peers = Peers("cpu" if jax.default_backend() == "cpu" else "cuda")
    path = pathlib.Path(options.results)
    results = {"machine": machine(peers), "groups": {}, "skipped": []}
    begin, longest, seconds = time.monotonic(), 0.0, 60 * options.minutes

    def left():
        return 1 - (time.monotonic() - begin) / seconds

    def write():
        results["seconds"] = time.monotonic() - begin
        path.write_text(json.dumps(results, indent=1) + "\n")

    with zipfile.ZipFile(options.programs) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        for name, entries in groups(manifest).items():
            # As long as the longest so far may the next one take.
            start = left()
            if start < longest:
                results["skipped"].append(name)
                continue
            results["groups"][name] = measure_group(
                entries, archive, peers, options.repetitions, left
            )
            longest = max(longest, start - left())
            write()
            print(f"{results['seconds']:4.0f} s  {name}", flush=True)
            jax.clear_caches()
    write()
    print(f"{len(results['groups'])} groups, {len(results['skipped'])} skipped")


if __name__ == "__main__":
    main()
