"""Dense attention: every query is compared with every key.

Exact and quadratic in the length; the other mechanisms are compared with it.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
