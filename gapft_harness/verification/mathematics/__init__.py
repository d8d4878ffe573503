"""Mathematical answers: read LaTeX as values, compare them exactly, find them in responses."""
