"""Datasets: found, downloaded, checked, decoded, split and batched."""
