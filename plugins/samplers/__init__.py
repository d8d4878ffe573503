"""Samplers: what generates responses, registered by name; see docs/samplers.md."""
