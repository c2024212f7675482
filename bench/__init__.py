"""Measures Cube Studio, and its peers beside it: `make bench`, or `python -m bench --help`."""
