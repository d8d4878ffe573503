"""Samplers for OpenAI-compatible servers."""
