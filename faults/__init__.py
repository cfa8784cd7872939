"""Faults on purpose: real kills, full disks, hostile files, several ranks, and how many of them a run survives."""
