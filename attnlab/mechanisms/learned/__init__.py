"""Learned patterns: which keys a query attends to depends on the content.

The few keys that matter are found before they are weighed: by a hash (Reformer), by clusters
(Routing Transformer), by a sorting of blocks (Sinkhorn attention), by the means of blocks (MoBA),
by what attention to means of short stretches finds (NSA), or by a search in a memory (Memorizing
Transformer, Unlimiformer). Adaptive span learns how far back each head attends, and entmax is a
softmax that gives most keys no weight at all.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
