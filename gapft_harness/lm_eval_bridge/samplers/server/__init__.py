"""Samplers on OpenAI-compatible servers."""
