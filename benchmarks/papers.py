"""The comparisons of Campbell and Beronov (2019), and the targets for Riemannian pursuit.

``python -m benchmarks.papers --all`` runs four parts, which take an hour of processor time:
``--gaussian``, ``--rbf``, ``--regressions``, ``--fixed``. Tables are in Markdown, with medians and
quartiles over the trials. The first two parts are Sections 5.1 and 5.2, where posteriors are known
in closed form: KL(coreset posterior || full posterior) in nats. The third is Section 5.3, six
regressions by Laplace approximations: the same divergence over KL(prior || full posterior).
``--fixed`` compares the methods that never draw from a coreset's posterior. A fifth part,
``--nuts``, builds coresets of PyMC models and estimates their true divergences. ``--schedule
paper`` lets SparseVI update its weights as often as the paper does, and takes hours with ten
trials; ``--methods`` runs only the methods that are named. ``--save`` saves the results of the
first three parts, ``--load`` shows saved results instead of running, and ``--figures`` draws
them.
"""

import argparse
import sys
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.closed_forms import Experiment, full_and_prior
from benchmarks.contenders import at_support, contenders, points_of
from benchmarks.curves import (
    MATCHED,
    PUBLISHED,
    PURSUIT,
    SPARSE_VI,
    Record,
    curves_of,
    gains_of,
    judged,
    read,
    table_of,
    write,
)
from benchmarks.fixed_draws import fixed_table
from benchmarks.paper_data import (
    DATA_SETS,
    gaussian_mean,
    load,
    needed_folder,
    radial_basis,
)
from benchmarks.paper_figures import draw_figures
from benchmarks.regressions import Laplace
from benchmarks.tables import parser_of, save

SMALL = (1, 2, 5, 10, 20, 50, 100)
SIZES = {"gaussian": (*SMALL, 200), "rbf": (10, 20, 50, 100, 200, 300)}
TITLES = {
    "gaussian": "Gaussian mean, d = 200, N = 1,000: KL in nats",
    "rbf": "301 radial basis functions, N = 10,000, made-up house prices: KL in nats",
}
# Weight updates of SparseVI per selection, and the numerator of the printed step.
SCHEDULES: dict[str, tuple[dict[str, int], float]] = {
    "gaussian": ({"short": 30, "paper": 100}, 1.0),
    "rbf": ({"short": 10, "paper": 100}, 1.0),
    "regressions": ({"short": 20, "paper": 500}, 0.5),
}
FIXED_DRAWS, FIXED_SEEDS = 500, 5
PARTS = ("gaussian", "rbf", "regressions")


def experiment_of(name: str, trial: int) -> Experiment:
    """Return an experiment; simulated data are simulated anew for every trial."""
    rng = np.random.default_rng([1, trial])
    if name == "gaussian":
        return gaussian_mean(rng)
    return radial_basis(rng) if name == "rbf" else Laplace(load(name, needed_folder()))


def run(name: str, trial: int, schedule: str, methods: Collection[str] = ()) -> Iterator[Record]:
    """Run some methods, by default all, on one experiment."""
    experiment, sizes = experiment_of(name, trial), SIZES.get(name, SMALL)
    full, prior = full_and_prior(experiment)
    updates, printed_step = SCHEDULES[name if name in SIZES else "regressions"]
    record = partial(
        Record,
        experiment=name,
        dimension=experiment.n_dims,
        prior_kl=prior.kl(full),
        schedule=schedule,
        trial=trial,
    )
    for label, contender in contenders(schedule, updates[schedule], printed_step).items():
        if methods and label not in methods:
            continue
        points = points_of(contender, experiment, sizes, np.random.default_rng([2, trial]))
        yield from (record(method=label, **vars(point)) for point in points)
        if label == SPARSE_VI:
            rng = np.random.default_rng([3, trial])
            matched = at_support(points, experiment, tuple(s for s in sizes if s >= 50), rng)
            yield from (record(method=MATCHED, **vars(point)) for point in matched)


def run_all(
    parts: list[str], trials: int, schedule: str, methods: Collection[str]
) -> Iterator[Record]:
    """Run one trial of all experiments of the parts after another."""
    names = [n for p in parts for n in (DATA_SETS if p == "regressions" else (p,))]
    for trial in range(trials):
        for name in names:
            yield from run(name, trial, schedule, methods)
            print(f"trial {trial + 1} of {name}: done", file=sys.stderr)


def report(records: list[Record], folder: Path | None) -> None:
    """Print the tables of every experiment and schedule, and the verdicts; save the published."""
    for schedule in dict.fromkeys(r.schedule for r in records):
        own = [r for r in records if r.schedule == schedule]
        names, closed = list(dict.fromkeys(r.experiment for r in own)), list[str]()
        for name in names:
            curves = curves_of([r for r in own if r.experiment == name], relative=name not in SIZES)
            dimension = next(r.dimension for r in own if r.experiment == name)
            title = TITLES.get(name, f"{name} (D = {dimension}): KL / KL of the prior")
            print(f"\n### {title}; {schedule} schedule, trials: {curves[0].n_trials}\n")
            print(table_of(curves))
            if name in SIZES:
                head = f"**{title}** Trials: {curves[0].n_trials}."
                closed += [head, table_of(curves)]
        if closed and schedule == "short":
            save(folder, "papers-closed", "\n\n".join(closed))
        regressions = [name for name in names if name in DATA_SETS]
        methods = {r.method for r in own if r.experiment in regressions}
        for label, pursuit, theirs in (
            ("same-m", PURSUIT, {SPARSE_VI, PUBLISHED}),
            ("same-rows", MATCHED, {SPARSE_VI}),
        ):
            if pursuit in methods and theirs & methods:
                gains = judged(gains_of(own, regressions, pursuit))
                print(f"\n### SparseVI over pursuit, {label}, {schedule} schedule\n\n{gains}")
                if schedule == "short":
                    save(folder, f"papers-{label}", gains)
                elif label == "same-m":
                    save(folder, "papers-paper-gains", gains)


def parsed() -> argparse.Namespace:
    parser = parser_of(__doc__)
    for part in ("all", *PARTS, "fixed", "nuts"):
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--schedule", choices=("short", "paper"), default="short")
    parser.add_argument("--methods", nargs="+", default=(), help="names as in the tables (all)")
    parser.add_argument("--save", type=Path, metavar="CSV", help="save the results here")
    parser.add_argument("--load", type=Path, nargs="+", metavar="CSV", help="show these results")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw the results there")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    chosen = {part for part in (*PARTS, "fixed", "nuts") if getattr(options, part)}
    if options.all or not (chosen or options.load):
        chosen |= {*PARTS, "fixed"}
    if options.load:
        records = [record for path in options.load for record in read(path)]
    else:
        parts = [part for part in PARTS if part in chosen]
        running = run_all(parts, options.trials, options.schedule, options.methods)
        records = list(write(options.save, running) if options.save else running)
    report(records, options.tables)
    if options.figures:
        draw_figures(records, options.figures)
    if "fixed" in chosen:
        print(f"\n### Six data sets, {FIXED_DRAWS} fixed draws, {FIXED_SEEDS} seeds\n")
        fixed = fixed_table(n_draws=FIXED_DRAWS, n_seeds=FIXED_SEEDS)
        print(fixed)
        save(options.tables, "papers-fixed-draws", fixed)
    if "nuts" in chosen:
        from benchmarks.nuts_judge import nuts_table  # noqa: PLC0415 - PyMC takes seconds to load

        print("\n### Riemannian pursuit with NUTS draws: true divergences\n", flush=True)
        judged_by_integrals = nuts_table()
        print(judged_by_integrals)
        save(options.tables, "papers-nuts", judged_by_integrals)


if __name__ == "__main__":
    main()
