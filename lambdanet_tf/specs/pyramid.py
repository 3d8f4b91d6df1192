"""Feature pyramids: the maps of a network by level."""


def pyramid_levels(spec):
    """Returns the name of the last map of each level l, of stride 2^l."""
    return {
        stride.bit_length() - 1: name
        for name, stride in spec.map_strides.items()
        if stride & (stride - 1) == 0
    }
