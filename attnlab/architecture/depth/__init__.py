"""The way through the layers: one after the other, again, in halves, or fewer than there are.

A page of this shelf has the role ``depth``: its forms are called as ``(x, layers, …) -> x`` with
the stream x of shape (b, n, dim) and layers x → x (``attnlab.core.branches.Layer``), and its
module as ``module(x, layers)``. Beside that the module has

- ``step(x, layers)``: the same where the layers carry a state on, as in decoding
- ``reads_branches``: whether it adds the branches of the layers itself, so that joins must have
  ``branch``
"""
