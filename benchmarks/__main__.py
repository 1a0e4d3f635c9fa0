"""Run the benchmarks one after another, for half an hour or more: ``python -m benchmarks``.

They are ``potentials``, ``methods`` and ``papers`` (without its longest part). Two others take long
and run only by name: ``python -m benchmarks.models`` (real models, judged by NUTS on all rows) and
``python -m benchmarks.glm`` (generalised linear models).
"""

import runpy

for name in ("potentials", "methods", "papers"):
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
