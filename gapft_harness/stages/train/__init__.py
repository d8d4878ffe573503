"""Training the arms."""
