"""Benchmarks of rankcse-st, run as `python -m benchmarks.evaluate` and so on from the root of the repository."""
