"""Measuring: what a call computes and holds (counted), how long it takes (timed, interleaved).

Counting (`count`) is exact and repeatable, so tests use it. Stop-watches (`timing`) and the memory
of a real process (`memory`) belong to `python -m attnlab.measure`, never to tests.
"""
