"""Compression: a smaller module with nearly the same outputs.

A page of this shelf has the role ``compress``: its module is called as ``compress(module)`` and
returns a module that is called as the one it was given, which stays as it was.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
