"""Who is better than a coreset, and where?  ``python -m benchmarks.opponents [--models a b]``.

Every model by every way that a knowledgeable user would take on a laptop, in the same run: seconds
(compilation apart), the worst shift of a mean and the worst ratio of standard deviations, Pareto
k-hat and KL divergence of what was drawn from, effective draws per second, and whether the way
*said* so where it was wrong.  Each way runs in a process of its own: where it fails, the table says
why.  A way that takes less than a minute runs twice, with an empty and then a filled folder of
compiled functions; the second run counts, and the first has a column of its own.

The truth is a further, longer run of NUTS on the distinct rows (``--reference SECONDS``), if the
first did half of its steps; else the best run of another way, which calls nothing wrong unless it
is sound.
A way is wrong where a mean is off by more than 0.1 sd, or an sd by more than a tenth, beyond Monte
Carlo noise, which is in brackets: what equal posteriors exceed in one of 1,000 comparisons.

``--seconds`` limits each way, without compilation.  A run of NUTS that does not end by then is
extrapolated from the part that was done, and marked with ``≈``.  ``--refits 20`` is
the number of other priors: one coreset for all of them against the best alternative in the table.
"""

import argparse
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pymc as pm

from benchmarks.isolation import NotDoneError, twice
from benchmarks.opponent_judge import Reference, Verdict, judge, reference_for
from benchmarks.opponent_models import LARGE, models
from benchmarks.opponent_summary import summary
from benchmarks.opponent_task import Answer, DoesNotApplyError, DoesNotFitError, Settings, Task, Way
from benchmarks.opponent_ways import CORESET_REFITS, REFERENCE, REFITS, WAYS, way_called
from benchmarks.public_data import MissingDataError
from benchmarks.tables import markdown, parser_of, save

__all__ = ["HEADER", "Record", "best_opponent", "compared", "measure", "table"]

HEADER = ("way", "compile, s", "rest, s", "processor, s", "first run, s", "shift / sd",
          "sd ratio", "k-hat", "KL", "effective draws", "per s", "was it right?",
          "remark")  # fmt: skip
COMPILATION = 180.0  # seconds that a way may take beyond its limit


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """What one way took and returned; ``failure`` where it returned nothing.

    ``at_first`` is the total of a run with an empty folder of compiled functions.  A way that does
    not apply to a model is left out of its table.
    """

    way: str
    seconds: float = np.nan
    compiling: float = np.nan
    processor: float = np.nan
    at_first: float = np.nan
    answer: Answer | None = None
    failure: str = ""
    applies: bool = True
    verdict: Verdict = field(default_factory=lambda: Verdict(compared=False))

    @property
    def total(self) -> float:
        """Seconds that the whole run takes, compilation included."""
        share = np.nan if self.answer is None else self.answer.share
        return self.compiling + (self.seconds - self.compiling) / share


# -- one way ---------------------------------------------------------------------------------------


def measure(name: str, way: str, take: Way, make: Callable[[], pm.Model], s: Settings) -> Record:
    """Take one way for one model in this process."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    try:
        model = make()
        task = Task(name=name, model=model, settings=s)
        worked = sum(os.times()[:4])
        with task.clock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = take(task)
        return Record(
            way=way,
            seconds=time.perf_counter() - task.began,
            compiling=task.clock.seconds,
            processor=sum(os.times()[:4]) - worked,
            answer=answer,
        )
    except (DoesNotFitError, MissingDataError) as error:
        applies = not isinstance(error, DoesNotApplyError)
        return Record(way=way, failure=str(error), applies=applies)
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return Record(
            way=way, failure=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        )


def guarded(name: str, way: str, settings: Settings) -> Record:
    """Do the same in a process of its own, which is ended where it takes far too long."""
    limit = settings.seconds + COMPILATION

    try:
        first, again = twice(_on_cores, lambda r: r.seconds, limit, name, way, settings)
        return replace(again, at_first=first.total)
    except NotDoneError as error:
        return Record(way=way, failure=str(error))


def _on_cores(name: str, way: str, settings: Settings) -> Record:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.cores])
    return measure(name, way, way_called(way), models()[name], settings)


# -- one model -------------------------------------------------------------------------------------


def compared(records: Sequence[Record], extra: Record | None = None) -> tuple[list[Record], str]:
    """Judge every record by the best reference, and say which that was."""
    references = [
        Reference(way=r.way, answer=r.answer)
        for r in (*records, *([extra] if extra else []))
        if r.answer is not None and r.answer.draws is not None and r.answer.effective > 0
    ]
    judged = [
        replace(r, verdict=judge(r.answer, reference_for(r.way, references))) if r.answer else r
        for r in records
    ]
    best = reference_for("", references)
    return judged, "none" if best is None else best.said


def best_opponent(judged: Sequence[Record]) -> str | None:
    """Return the fastest way that was right and can be repeated with other priors."""
    able = [
        r
        for r in judged
        if r.way in REFITS
        and r.answer is not None
        and not r.verdict.wrong
        and (not r.answer.warned or r.answer.share < 1)
    ]
    return min(able, key=lambda r: r.total).way if able else None


def line_of(record: Record) -> list[str]:
    """Return the record's line of the table."""
    answer, verdict = record.answer, record.verdict
    if answer is None:
        return [record.way, *[""] * (len(HEADER) - 2), record.failure]
    partial = answer.share < 1
    mark = "≈ " if partial else ""
    remark = f"extrapolated from {answer.share:.0%} of the run" if partial else ""
    effective = answer.effective / answer.share
    return [
        record.way,
        f"{record.compiling:.1f}",
        _number(record.total - record.compiling, ".1f", mark),
        "" if partial else f"{record.processor:.1f}",
        _number(record.at_first, ".1f", mark),
        _with_noise(verdict.shift, verdict.shift_noise),
        _with_noise(verdict.ratio, verdict.ratio_noise),
        _number(answer.khat, ".2f"),
        _number(answer.kl, ".2g"),
        _number(answer.effective, ",.0f"),
        _number(effective / record.total, ".3g"),
        verdict.told(warned=answer.warned, finished=answer.finished),
        "; ".join(filter(None, [answer.remark, remark])),
    ]


def _number(value: float, form: str, mark: str = "") -> str:
    return "" if np.isnan(value) else mark + format(value, form)


def _with_noise(value: float, noise: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f} ({noise:.2f})"


def table(name: str, records: Sequence[Record], said: str) -> str:
    """Return a model's part of the report."""
    lines = [line_of(record) for record in records if record.applies]
    return f"{name}, judged by: {said}.\n\n{markdown(HEADER, lines)}"


# -- the program -----------------------------------------------------------------------------------


def parsed() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="*", help="all but the largest by default")
    parser.add_argument("--large", action="store_true", help=f"{LARGE}, too")
    parser.add_argument("--ways", nargs="*", help="some of them, by parts of their names")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each way (%(default)s)")
    parser.add_argument("--reference", type=float, default=400.0, help="seconds (%(default)s)")
    parser.add_argument("--refits", type=int, default=20, help="other priors; 0 for none")
    parser.add_argument("--draws", type=int, default=1000, help="draws per chain (%(default)s)")
    parser.add_argument("--tune", type=int, default=1000, help="tuning steps (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (%(default)s)")
    parser.add_argument("--cores", type=int, default=1, help="for each way (%(default)s)")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the names of the models and the ways that were asked for."""
    names = options.models
    if names is None:
        names = [n for n in models() if n != LARGE or options.large]
    unknown = set(names) - set(models())
    if unknown:
        sys.exit(f"Unknown: {', '.join(sorted(unknown))}. There are {', '.join(models())}.")
    found = [w for w in WAYS if not options.ways or any(part in w for part in options.ways)]
    if not found:
        sys.exit(f"No such way. There are {', '.join(WAYS)}.")
    return names, found


def report(name: str, taken: Sequence[str], options: argparse.Namespace) -> str:
    """Take one way after the other, then the reference and the refits."""
    settings = Settings(
        draws=options.draws,
        tune=options.tune,
        seconds=options.seconds,
        seed=options.seed,
        cores=options.cores,
        refits=options.refits,
    )

    def run(way: str, settings: Settings = settings) -> Record:
        record = guarded(name, way, settings)
        print(name, *line_of(record), sep=" | ", file=sys.stderr, flush=True)
        return record

    records = [run(way) for way in taken]
    longer = replace(
        settings, draws=2 * options.draws, seconds=options.reference, seed=options.seed + 1
    )
    ended = any(
        record.way.startswith("NUTS") and record.answer and record.answer.share > 0.5
        for record in records
    )
    judged, said = compared(records, run(REFERENCE, longer) if ended else None)
    if options.refits:
        best = best_opponent(judged)
        judged += [run(f"refits of {best}")] if best else []
        judged.append(run(CORESET_REFITS))
    return table(name, judged, said)


def main() -> None:
    options = parsed()
    names, taken = chosen(options)
    for name in names:
        text = report(name, taken, options)
        print(text, end="\n\n", flush=True)
        save(options.tables, f"opponents-{name.replace('_', '-')}", text)
    if options.tables:
        save(options.tables, "opponents-summary", summary(options.tables))


if __name__ == "__main__":
    main()
