"""How the layers of a stack are run: one after the other, computed again, shared or left out.

A page of this shelf has the role ``depth``: its forms are called as ``(x, layers, …) -> x`` with
the stream x of shape (b, n, dim) and layers x → x (``attnlab.core.branches.Layer``), and its
module, an ``attnlab.core.depth.Way``, as ``module(x, layers)``. Beside that the module has

- ``step(x, layers)``: the same where the layers carry a state on, as in decoding
- ``sets(layers)``: which layers share their parameters
- ``reads_branches``: whether it adds the branches of the layers itself, so that joins must have
  ``branch``
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
