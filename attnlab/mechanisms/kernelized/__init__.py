"""Kernelized attention: a dot product of features replaces the exponential of the softmax.

Then keys and values can be summed before any query is known, and the cost is linear in the length.
The linear Transformer chooses simple features and has other weights than the softmax; the Performer
draws random features whose products are those of the softmax in the mean.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
