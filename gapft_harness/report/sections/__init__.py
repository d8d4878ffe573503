"""Build the report's sections."""
