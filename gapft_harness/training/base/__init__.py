"""The frozen base model as training sees it."""
