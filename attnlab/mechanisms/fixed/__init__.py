"""Fixed patterns: which query attends to which key does not depend on the tokens."""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
