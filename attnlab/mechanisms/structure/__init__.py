"""Structure beyond the sequence: trees, graphs, tables and linked texts.

What may attend to what is given with the data. A phrase is gathered from its words along a tree
(tree attention, the Tree-LSTM), a node attends to its neighbours in a graph (Graph Transformer,
Graph Transformer Network, TokenGT), a question is compared with the rows and columns of a table
(row-column intersection), and texts that are linked tell each other what they hold (eXtra hop
attention).
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
