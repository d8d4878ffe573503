"""The recipe: one YAML file with everything that a run depends on."""
