"""Learned patterns: which keys a query attends to depends on the content."""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
