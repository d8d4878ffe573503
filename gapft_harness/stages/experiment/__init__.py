"""Experiments: additional steps of a run. No other module names a particular one.

An experiment is registered by the hook ``register_experiments``, bundled ones too. It yields its
steps, which the engine makes, plans and checks.
"""
