"""What follows after a coreset is built: ``python -m benchmarks.after [TABLE ...] [--runs --n]``.

``closed``
    The elpd of all rows, where it has a closed form.
``nuts``
    The same of real data, against `arviz.loo` at draws of NUTS on all rows.
``seconds``
    Processor seconds of `check`, `reweight`, `loo` and `predict`, beside those of the arithmetic.
``predict``
    Those of `predict`, and of PyMC's posterior predictive draws.
``months``
    Ten monthly updates by `extend`, beside a coreset of all rows so far.
"""

import warnings
from collections.abc import Callable

from benchmarks.elpd_closed_forms import closed_forms_table, seconds_after
from benchmarks.elpd_of_nuts import nuts_table
from benchmarks.predicted import predictions_table
from benchmarks.tables import parser_of, save
from benchmarks.updates import months_table
from pymc_coresets import CoresetWarning


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("parts", nargs="*", metavar="TABLE", help="all of them by default")
    parser.add_argument("--runs", type=int, default=40, help="of each set (%(default)s)")
    parser.add_argument("--n", type=int, default=3_000_000, help="rows (%(default)s)")
    options = parser.parse_args()
    tables: dict[str, Callable[[], str]] = {
        "closed": lambda: closed_forms_table(options.runs),
        "nuts": lambda: nuts_table(options.runs // 4),
        "seconds": lambda: seconds_after(options.n),
        "predict": predictions_table,
        "months": lambda: months_table(10),
    }
    unknown = set(options.parts) - set(tables)
    if unknown:
        parser.error(f"there are no tables {sorted(unknown)}: choose from {list(tables)}")
    warnings.simplefilter("ignore", CoresetWarning)
    for name in options.parts or tables:
        table = tables[name]()
        print(f"## {name}\n\n{table}\n", flush=True)
        save(options.tables, f"after-{name}", table)


if __name__ == "__main__":
    main()
