"""Search: the deployment decode and K samples of every problem, and the resulting states."""
