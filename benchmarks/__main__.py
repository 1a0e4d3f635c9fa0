"""Run every benchmark, one after another: ``python -m benchmarks``."""

import runpy

for name in ("potentials", "methods", "papers"):
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
