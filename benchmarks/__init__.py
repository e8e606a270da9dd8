"""How fast fmq is beside what a Python user would pick instead: `python -m benchmarks`."""
