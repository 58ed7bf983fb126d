"""What stands between two attention layers: feed-forward layers, joins, and how a stack is run."""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
