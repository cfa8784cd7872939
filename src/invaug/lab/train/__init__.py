"""`invaug train`: the loop, its state, its schedule, its display."""
