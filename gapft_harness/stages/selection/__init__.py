"""Selection: each condition's selector fills the matched budget."""
