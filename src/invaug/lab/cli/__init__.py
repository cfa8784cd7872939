"""The `invaug` command: verbs, flags, and what goes wrong in one line."""
