"""Feed-forward layers: each position is treated alone, between two attention layers.

A page of this shelf has the role ``feed``: its forms are called as ``(x, …) -> out`` with x and out
of shape (b, n, dim), and its module as ``module(x)``. The matrix whose product is added to the
stream is ``module.contract``.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
