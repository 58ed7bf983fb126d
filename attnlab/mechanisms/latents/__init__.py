"""Latents: tokens exchange information only through a few learned vectors.

The latents attend to all tokens, then the tokens attend to the latents. Each step compares n tokens
with m latents, so the cost is linear in the length.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
