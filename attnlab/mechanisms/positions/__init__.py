"""Positions: how a model is told the order of its tokens, and how tokens become vectors."""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
