"""Figures from plain arrays, rows and cards; never from models.

``maps``             one attention map, every head at once, a map over training steps
``losses``, ``costs``, ``claims``, ``spectra``, ``dots``
                     loss curves, measured costs, claimed costs, singular values, scores of seeds
``score_table``      scores of many models on many tasks
``part_bars``        the parts of a sum, such as what each head writes into a logit
``head_scatter``     the heads of a model as points, with their spread over many texts
``gallery``          maps of several mechanisms on one text, each on a scale of its own
``patterns``, ``receptive_field``, ``pixels``
                     masks, receptive fields after several layers, the same on an image
``clusters``           points and the ellipses of their clusters
``patches``            maps of a grid of patches, one per head
``examples``, ``images``
                     what a task looks like, samples of models
``timeline``         who works and who waits, process by process
``trees``            a tree as SVG and as text
``stacks``           blocks on a table
``picture``          what the others return: a plotly figure with a description in words
``static``, ``svg``  the figure as SVG, for pages without plotly
``theme``            light, dark or auto, set once or per figure
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
