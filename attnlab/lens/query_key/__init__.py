"""Queries and keys of every head in one picture (AttentionViz), and how far to trust it.

An attention map shows one sequence. Queries and keys are vectors of one width, so those of many
sequences can be placed in one space, in which a query is near the keys that it attends to (Yeh,
Chen, Wu, Chen, Viégas, Wattenberg, AttentionViz: A Global View of Transformer Attention, IEEE VIS
2023, arXiv:2305.03210).

    collect     queries and keys of any model, over many sequences
    normalise   the two changes that leave attention as it is and bring the clouds together
    maps        PCA, UMAP or t-SNE in two or three dimensions, aligned to one another
    faithfulness   what a map keeps of the full space and of the scores

Departures from the released code: queries and keys are scaled before the keys are translated (it
has the translation only), keys alone are translated, everything is seeded, and no map comes without
its faithfulness.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
