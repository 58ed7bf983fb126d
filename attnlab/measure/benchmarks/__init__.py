"""Benchmarks: what can be measured; one file, one topic, found by walking this folder.

A topic is a module whose docstring's first line is its title, with `rows(*, quick, threads)` that
measures everything of the topic in one run and yields its rows. `quick` takes sizes and repeats
small enough to check that everything runs; its figures are not the ones to report.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
