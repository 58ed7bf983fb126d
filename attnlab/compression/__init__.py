"""A smaller module with nearly the same outputs: pruned, of fewer bits, or taught by a large one.

A page of this shelf has the role ``compress``: its module is called as ``compress(module)`` and
returns a module that is called as the one it was given, which stays as it was.
"""
