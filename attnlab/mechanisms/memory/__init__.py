"""Memory: what is kept of earlier segments of a text, and how later queries attend to it.

Transformer-XL keeps the last states, the Compressive Transformer a summary of older ones, the
Block-Recurrent Transformer a table of state vectors that attention reads and rewrites; a Hopfield
network recalls stored patterns.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
