"""How a sublayer joins the stream: where the layer norm stands, and how much is added.

A page of this shelf has the role ``join``: its forms are called as ``(x, f, …) -> x`` with the
stream x of shape (b, n, dim) and a sublayer f, and its module as ``module(x, f)``. Beside that the
module says

- ``normalised``: whether the stream is normalised after it; if not, a stack ends with a norm
- ``norm``: its norm, if it has one; a stack that ends with a norm takes one of the same kind
- ``prepare(sublayer)``: puts inside attention or a feed-forward layer what the join needs there,
  before anything else; most joins have none
- ``initialise(sublayer, branches)``: changes the initial weights of a sublayer, one of so many on
  its stream
- ``branch(x, f)``: what is added to the stream, if the join only adds; reversible layers need it

A join is built with ``dim``, ``layers`` (of its stack), ``layer`` (which of them, from 0),
``dropout``, and in an encoder-decoder ``side`` and ``others`` (layers of the other stack), where
its constructor takes them.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
