"""Trees, graphs, tables and pairs of texts as data, and as batches that layers take as input."""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
