"""Figures: what they hold, and how they are drawn."""
