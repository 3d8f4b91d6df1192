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


class Clock:
    """The time that is left."""

    def __init__(self, minutes):
        self.start = time.monotonic()
        self.seconds = 60 * minutes

    @property
    def taken(self):
        return time.monotonic() - self.start

    @property
    def left(self):
        return self.seconds - self.taken


def program(entry, artifact):
    """Compiles a program; returns a function, and what it needs.

    Args:
        entry: line of the manifest.
        artifact: bytes of its StableHLO.

    Returns:
        A function that runs it once and returns its outputs, and a dict:
        `compile_seconds`, `temporaries` in bytes.
    """
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
    """Times functions in turns.

    Args:
        contestants: dict from name to (function, function that awaits its
            result).
        repetitions: int.
        left: function that returns the seconds that are left.

    Returns:
        Dict from name to `median`, `fastest` and `slowest`, in seconds, and
        the number of `repetitions`.
    """
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
        """The module alone where the whole of timm cannot be imported.

        The whole needs torchvision.
        """
        name = "timm.layers.lambda_layer"
        module = self._module(name)
        if module is not None or self.torch is None:
            return module
        spec = importlib.util.find_spec("timm")
        if spec is None:
            return None
        root = pathlib.Path(spec.origin).parent
        for package, folder in (
            ("timm", root),
            ("timm.layers", root / "layers"),
        ):
            stub = types.ModuleType(package)
            stub.__path__ = [str(folder)]
            sys.modules[package] = stub
        return self._module(name)

    def layers(self, layer):
        """The peers' layers of the geometry, on the CPU still."""
        found = {}
        if self.torch is None or layer is None:
            return found
        size, dim, scope = layer["image_size"], layer["filters"], layer["scope"]
        if self.timm is not None:
            where = {"r": scope} if scope else {"feat_size": (size,) * 2}
            arguments = {"num_heads": 4, "dim_head": 16, "r": None, **where}
            found["timm"] = self.timm.LambdaLayer(dim, **arguments)
        if self.lucidrains is not None:
            where = {"r": scope} if scope else {"n": size}
            arguments = {"dim_k": 16, "heads": 4, "dim_u": 1, **where}
            found["lucidrains"] = self.lucidrains.LambdaLayer(
                dim=dim, dim_out=dim, **arguments
            )
        return found

    def network(self, name):
        timm = sys.modules.get("timm")
        if self.torch is None or not hasattr(timm, "create_model"):
            return {}
        return {"timm": timm.create_model(name)}

    def contestants(self, entry, compiled):
        """Functions for the group of an entry, in PyTorch, eager or compiled.

        Args:
            entry: any line of the manifest of that group.
            compiled: whether they are compiled too.
        """
        modules, size = self.layers(entry["layer"]), entry["image_size"]
        channels = entry["layer"] and entry["layer"]["filters"]
        if entry["peer"]:
            modules, channels = self.network(entry["peer"]), 3
        found = {}
        for name, module in modules.items():
            module = module.to(self.device).train(entry["training"])
            shape = [entry["batch"], channels, size, size]
            inputs = self.torch.rand(shape, device=self.device)
            step = self._step(module, inputs, entry)
            found[f"{name}, eager"] = step, self._wait
            if compiled:
                module = self.torch.compile(module)
                step = self._step(module, inputs, entry)
                found[f"{name}, compiled"] = step, self._wait
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


def measure_group(entries, archive, peers, options, clock):
    """Compiles and times the programs of a group, and their peers."""
    contestants, facts, failures = {}, {}, {}
    for entry in entries:
        name = entry["contestant"]
        try:
            function, facts[name] = program(entry, archive.read(entry["file"]))
        except jax.errors.JaxRuntimeError as error:
            failures[name] = str(error)[:400]
        else:
            contestants[name] = function, jax.block_until_ready
    first = entries[0]
    for name, pair in _peers(first, peers, options, clock, failures).items():
        try:
            pair[1](pair[0]())
        except Exception as error:  # noqa: BLE001 (of any package)
            failures[name] = f"{type(error).__name__}: {error}"[:400]
        else:
            contestants[name] = pair
    times = in_turns(contestants, options.repetitions, lambda: clock.left)
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


def _peers(entry, peers, options, clock, failures):
    """The peers' functions; compiled ones in the first half of the time."""
    if options.no_peers:
        return {}
    compiled = options.compile_peers and clock.left > clock.seconds / 2
    try:
        return peers.contestants(entry, compiled)
    except Exception as error:  # noqa: BLE001 (of any package)
        failures["peers"] = f"{type(error).__name__}: {error}"[:400]
        return {}


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
    names = list(found)
    networks = [name for name in names if found[name][0]["layer"] is None]
    layers = [name for name in names if name not in networks]
    order = [*layers[:4], *networks, *layers[4:]]
    return {name: found[name] for name in order}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs", help="the file of benchmarks.gpu.lower")
    parser.add_argument("results", help="the file to write")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument(
        "--eager-peers",
        dest="compile_peers",
        action="store_false",
        help="without torch.compile",
    )
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)  # counters of steps are int64
    clock = Clock(options.minutes)
    peers = Peers("cpu" if jax.default_backend() == "cpu" else "cuda")
    path = pathlib.Path(options.results)
    results = {"machine": machine(peers), "groups": {}, "skipped": []}
    longest = 0.0
    with zipfile.ZipFile(options.programs) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        for name, entries in groups(manifest).items():
            # As long as the longest so far may the next one take.
            if clock.left < longest:
                results["skipped"].append(name)
                continue
            start = clock.taken
            results["groups"][name] = measure_group(
                entries, archive, peers, options, clock
            )
            longest = max(longest, clock.taken - start)
            path.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{clock.taken:4.0f} s  {name}", flush=True)
            jax.clear_caches()
    results["seconds"] = clock.taken
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{len(results['groups'])} groups, {len(results['skipped'])} skipped")


if __name__ == "__main__":
    main()
