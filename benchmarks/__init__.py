"""Measurements of the course's own machinery, side by side in one run. `make bench` prints them."""
