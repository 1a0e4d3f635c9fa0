"""Print the features of this processor that NumPy can be told not to use, separated by commas.

With an argument, only those whose names contain it: ``AVX512`` also stands for the level X86_V4.
Names that this NumPy does not know, or that this processor lacks, would make NumPy warn.
"""

import sys

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

SYNONYMS = {"X86_V4": "AVX512"}


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    found = [
        name
        for name in __cpu_dispatch__
        if __cpu_features__[name] and wanted in name + SYNONYMS.get(name, "")
    ]
    print(",".join(found))


if __name__ == "__main__":
    main()
