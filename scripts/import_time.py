"""Measure how long the installed package takes to import after PyMC, and refuse if that is long.

Processor seconds, the fastest of a few fresh processes: other programs run on the machine, too.
"""

import subprocess
import sys

AT_MOST = 0.2  # s; a few milliseconds are usual
PROCESSES = 5
CODE = """
from time import process_time
times = [process_time()]
import pymc; times.append(process_time())
import pymc_coresets; times.append(process_time())
pymc_coresets.build_coreset; times.append(process_time())
print(*(b - a for a, b in zip(times, times[1:])))
"""


def main() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
        for _ in range(PROCESSES)
    ]
    columns = zip(*(map(float, run.stdout.split()) for run in runs), strict=True)
    pymc, package, builder = map(min, columns)
    print(
        f"importing takes {pymc:.2f} s (PyMC) and {package:.3f} s (the package after it); "
        f"the first use of build_coreset loads its libraries in {builder:.2f} s"
    )
    if package > AT_MOST:
        raise SystemExit(f"the package takes more than {AT_MOST} s to import after PyMC")


if __name__ == "__main__":
    main()
