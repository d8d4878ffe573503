"""Samplers: lm-eval's models with exact token ids, seeds and adapters."""
