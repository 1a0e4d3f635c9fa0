"""Run the benchmarks one after another, for half an hour or more: ``python -m benchmarks``.

They are ``potentials``, ``methods`` and ``papers`` (without its longest part). The others take long
and run by name alone, such as ``python -m benchmarks.opponents``.
"""

import runpy

for name in ("potentials", "methods", "papers"):
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
