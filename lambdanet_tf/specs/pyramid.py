"""Feature pyramids: the maps of a network by their level."""


def pyramid_levels(spec):
    """Returns the names of the last map by level; level l has stride 2^l."""
    return {
        stride.bit_length() - 1: name
        for name, stride in spec.map_strides.items()
        if stride & (stride - 1) == 0
    }
