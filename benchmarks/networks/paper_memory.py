"""Table 4: what self-attention and lambda layers store, in a ResNet-50.

The paper gives a formula per layer type, with l the number of layers:

    global self-attention   b l h n^2      axial   b l h n sqrt(n)
    lambda layer            l k n^2        shared embeddings   k n^2

Its gigabytes come out with float32, 1 GB = 2^30 bytes, 8 heads of attention,
the maps that the stages put out (56, 28, 14 and 7 wide for 224 px) for all of
their layers, two attention maps per axial layer, and embeddings shared by all
layers of a stage. All 16 layers count, though c2 is most of it. The row of
k = 8 is half of the rounded row above it (0.96 if computed).
"""

import math

BLOCKS = (3, 4, 6, 3)  # Of ResNet-50.
ATTENTION_HEADS = 8
FLOAT_BYTES = 4
GIB = 2**30


def table_4_gib(batch=128, image_size=224, key_dim=16):
    """Memory in GiB, by the paper's names of the layers."""
    widths = [math.ceil(image_size / stride) for stride in (4, 8, 16, 32)]
    stages = list(zip(BLOCKS, widths, strict=True))
    pairs = sum(blocks * width**4 for blocks, width in stages)
    lines = sum(blocks * width**3 for blocks, width in stages)
    shared = sum(width**4 for width in widths)
    numbers = {
        "global self-attention": batch * ATTENTION_HEADS * pairs,
        "axial self-attention": 2 * batch * ATTENTION_HEADS * lines,
        "lambda": key_dim * pairs,
        "lambda k=8": key_dim // 2 * pairs,
        "lambda shared embeddings": key_dim * shared,
    }
    return {
        name: number * FLOAT_BYTES / GIB for name, number in numbers.items()
    }
