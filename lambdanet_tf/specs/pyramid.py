"""Feature pyramids: the maps of a network by their level."""


def pyramid_levels(spec):
    """Returns the names of a network's maps by level; level l has stride 2^l.

    Of several maps of a stride the last one counts. A stride that is no power
    of two has no level.

    In most networks they are `{2: "c2", ..., 5: "c5"}`.
    """
    return {
        stride.bit_length() - 1: name
        for name, stride in spec.map_strides.items()
        if stride & (stride - 1) == 0
    }
