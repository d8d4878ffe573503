"""The paper's statistics as pure functions of arrays, with numpy and scipy only."""
