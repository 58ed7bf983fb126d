"""Experiments of the lessons, whose results are stored: each row is one small model's training.

An experiment is a module whose docstring's first line is its title, with `rows(*, quick, threads)`
that trains everything and yields its rows. `quick` trains for a few steps, to check that everything
runs. There are no timings and no thresholds here; those are benchmarks, in `attnlab.measure`.

    python -m attnlab.experiments needle --threads 1 --json notebooks/assets/11_needle.json
"""
