"""Fixed patterns: which query attends to which key does not depend on the tokens.

Most keys are left out, by a rule that is known before the text is: a window (Longformer, the Image
Transformer), the first tokens and the last (StreamingLLM), rows and columns of a grid (axial
attention), steps of a stride (the Sparse Transformer), blocks drawn at random (BigBird). Far tokens
then meet through a few global tokens (ETC, LongT5), through summaries of their neighbours
(memory-compressed attention), or in two layers.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
