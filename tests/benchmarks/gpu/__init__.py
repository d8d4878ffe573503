"""Training speed on a GPU: ``python -m tests.benchmarks.gpu``. Absolute figures with ceilings."""
