"""The byte operations themselves: their rules, in torch, and as compiled loops."""
