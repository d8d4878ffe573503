"""Samplers: they generate responses, and are registered by name; see docs/samplers.md."""
