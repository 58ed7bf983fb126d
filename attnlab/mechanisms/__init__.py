"""The shelf: one family is one folder, one mechanism is one file."""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
