"""The ``hf`` sampler."""
