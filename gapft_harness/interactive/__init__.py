"""Runs and sample logs as Python objects, for notebooks and scripts (docs/python.ipynb).

``gapft_harness`` gives these names when they are asked for; importing this room loads no numpy.
"""
