"""What embedkit costs, and what it shows: run with ``python -m benchmarks.NAME`` from the repository."""
