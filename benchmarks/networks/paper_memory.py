"""Table 4: what self-attention and lambda layers store, in a ResNet-50.

The paper's formulas, with l layers: global self-attention b l h n^2, axial
b l h n sqrt(n), lambda layers l k n^2, shared embeddings k n^2. Its figures
come out with float32, 8 heads of attention, the maps that the stages put out,
and two maps per axial layer. The row of k = 8 is half of the rounded row above.
"""

BLOCKS = {56: 3, 28: 4, 14: 6, 7: 3}  # of ResNet-50, by the width of the map
HEADS = 8  # of attention


def table_4_gib(batch=128, key_dim=16):
    """Memory in GiB, by the paper's names of the layers."""
    pairs = sum(blocks * width**4 for width, blocks in BLOCKS.items())
    lines = sum(blocks * width**3 for width, blocks in BLOCKS.items())
    shared = sum(width**4 for width in BLOCKS)
    numbers = {
        "global self-attention": batch * HEADS * pairs,
        "axial self-attention": 2 * batch * HEADS * lines,
        "lambda": key_dim * pairs,
        "lambda k=8": key_dim // 2 * pairs,
        "lambda shared embeddings": key_dim * shared,
    }
    return {name: 4 * number / 2**30 for name, number in numbers.items()}
