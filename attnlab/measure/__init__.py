"""Measuring a call: its FLOPs and memory (counted), and its time (interleaved with others).

Counting (`count`; `costs` for a whole layer at any length) is exact and repeatable, so tests use
it. Stop-watches (`timing`, `measured`) and the memory of a real process (`memory`) belong to
`python -m attnlab.measure`, never to tests. `fit` says what the figures mean, with intervals.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
