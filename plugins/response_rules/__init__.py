"""Response rules: they choose the kept sample of a recovered problem."""
