"""Dense attention: every query is compared with every key.

Exact and quadratic in the length; the other mechanisms are compared with it. Full attention is the
definition, and FlashAttention computes the same tile by tile without storing the scores.
Multi-query attention shares keys and values between heads, multi-head latent attention makes them
of one small vector, and complex attention has complex queries and keys. A sink logit, or a gate on
what was read, lets a head take less than a whole from its keys; forgetting attention has a gate for
each token, by which all that was before it counts less. Differential attention subtracts a second
map of weights from the first. Scores are bounded by a norm of queries and keys, or by a soft cap.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
