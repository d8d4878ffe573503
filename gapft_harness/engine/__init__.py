"""The engine: everything that a run makes is a step with a key.

A pipeline calls ``make`` with steps. ``Runner`` makes their outputs, ``Planner`` tells which are
new, and ``Checker`` holds recorded outputs against the pipeline.
"""
