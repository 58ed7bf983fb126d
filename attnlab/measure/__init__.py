"""Measuring a call: its FLOPs and memory (counted), and its time (interleaved with others).

Counting (`count`) is exact and repeatable, so tests use it. Stop-watches (`timing`) and the memory
of a real process (`memory`) belong to `python -m attnlab.measure`, never to tests.
"""
