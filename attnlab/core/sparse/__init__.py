"""Sparse attention: layouts of the allowed pairs, and the forms that compute these pairs alone."""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
