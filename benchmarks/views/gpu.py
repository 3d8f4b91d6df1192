"""Tables of what ran on a GPU: those of layers and of networks."""

from benchmarks.views import grouped
from benchmarks.views import layers
from benchmarks.views import networks
from benchmarks.views import view


@view("gpu.md#gpu")
def gpu(found):
    parts = []
    for (device, precision), rows in grouped(
        found["gpu"], "device", "precision"
    ).items():
        lines = [row for row in rows if "layer" in row["case"]]
        steps = [row for row in rows if "network" in row["case"]]
        parts.append(f"{device}, {precision}:")
        if lines:
            parts.append(layers.layers({"layers": lines}))
        if steps:
            parts.append(networks.networks({"networks": steps}))
    return "\n\n".join(parts)
