"""Augmentation policies of other papers, as published."""
