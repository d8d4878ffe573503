"""Trainers: they fine-tune an adapter on a selection."""
