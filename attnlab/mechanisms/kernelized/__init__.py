"""Kernelized attention: a dot product of features replaces the exponential of the softmax.

Then keys and values can be summed before any query is known, and the cost is linear in the length.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
