"""Auditing the arms."""
