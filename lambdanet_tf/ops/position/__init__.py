"""Position outputs: the algorithms, and the plan that chooses among them.

    Y[b, n, h, v] =
        sum over m, k, u of  Q[b, n, h, k] E[n, m, k, u] V[b, m, v, u]

All algorithms compute this function; their costs differ up to a hundredfold.
"""
