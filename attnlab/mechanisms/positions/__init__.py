"""Positions: how a model is told the order of its tokens, and how tokens become vectors.

Attention alone does not know in which order its keys stand. A position may be added to the
embedding (sinusoidal and learned positions), turn queries and keys (RoPE), or change the scores by
distance (ALiBi, KERPLE, Sandwich, the biases of T5, the vectors of Shaw and of Transformer-XL).
Nodes of trees and graphs have positions of their own. Beside them stand the embeddings of tokens:
factorized tables, bytes, learned subwords, and words as complex waves.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
