"""Position outputs: the algorithms, and the plan that takes one of them.

    Y[b, n, h, v] =
        sum over m, k, u of  Q[b, n, h, k] E[n, m, k, u] V[b, m, v, u]

Every algorithm computes this function, at costs up to a hundred times apart.
"""
