"""Studies: several runs, each a cell of one comparison, which are run and reported together."""
