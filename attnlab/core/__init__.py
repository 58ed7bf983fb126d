"""What all other packages build on: shapes, cards, patterns, probes, heads, the masked softmax."""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
