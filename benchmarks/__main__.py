"""Run the benchmarks, one after another: ``python -m benchmarks``, half an hour and more.

These are ``potentials``, ``methods`` and ``papers`` (as without options: not its parts that take
hours). Two more are long, and run only when named: ``python -m benchmarks.models`` (real models,
NUTS on all rows as the judge) and ``python -m benchmarks.glm`` (generalised linear models).
"""

import runpy

for name in ("potentials", "methods", "papers"):
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
