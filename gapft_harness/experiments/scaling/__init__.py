"""Adapter scaling: one trained adapter at the scale that calibration allows."""
