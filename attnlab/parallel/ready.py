"""What a process needs before others start as copies of it.

The first backward pass of a process imports sympy, which takes a second and more.
"""

import sympy  # noqa: F401

import attnlab.parallel.context  # noqa: F401
