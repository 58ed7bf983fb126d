"""Low-rank and synthetic attention: maps with fewer degrees of freedom than n × n.

Linformer projects n keys and values to k, so that the map of weights has a rank of at most k. The
Synthesizer does not compare tokens: it makes the weights of one token alone, or learns them.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
