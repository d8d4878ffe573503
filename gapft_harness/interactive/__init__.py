"""Runs and sample logs as Python objects, for notebooks and scripts (docs/python.ipynb).

``gapft_harness`` loads these names on first use; importing this package does not load numpy.
"""
