"""Memory: what is carried from one segment to the next, and what fits through a few slots."""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
