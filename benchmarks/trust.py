"""Can the word "Reliable" be trusted?  ``python -m benchmarks.trust [--seeds 1 2 3]``.

Sixty posteriors with known quantiles: 24 harmless ones, and 36 with tails, bounds, modes or
variables of levels that a certificate may overlook.  Of each: a coreset by default settings, its
draws, and what ``check`` says of them.  They are right if every free variable, or some levels of a
variable with hundreds, has its 1, 5, 50, 95 and 99 % quantiles where the truth has them, as far as
the tolerance allows; where the verdict is "reliable once re-weighted", after ``reweight``.
"Reliable" is false where they are wrong.  An alarm is false where they are right and the chains
agree, and wherever the posterior is harmless unless they are wrong.  A refusal with an error is an
alarm, too.

A symmetrised divergence of 0.01 nats allows that three quarters of a tail of 1 % are missing.
Whether more is missing shows only with many draws (``--draws 5000``).

The truth lies in a file; ``--truth`` computes it anew.  Each case runs in a process of its own.
"""

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr

from benchmarks import trust_truth
from benchmarks.isolation import NotDoneError, isolated
from benchmarks.tables import markdown, parser_of, save
from benchmarks.trust_cases import POSTERIORS
from benchmarks.trust_judge import Convergence, Judgement, convergence, judge, variables
from benchmarks.trust_truth import Marginal
from pymc_coresets import Certificate, Coreset, CoresetError, Level, Reason, build_coreset

HEADER = ("posterior", "D", "harmless", "seed", "certificate", "check", "right", "what that is",
          "worst", "R-hat", "ESS", "build, s", "sample, s", "check, s")  # fmt: skip
STEPS = ("build", "sample", "check")
LIMIT = 1_800.0  # seconds that a case may take
HARD = "with tails, bounds, modes or levels"
RELIABLE, REWEIGHTED = Level.RELIABLE.lower(), Level.REWEIGHTED.lower()


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was said of one coreset's draws, and whether they were right; seconds of processor.

    ``said`` is what `check` says, ``certified`` what the build says; ``judgement`` is that of the
    draws, which are re-weighted where `check` says so.
    """

    name: str
    seed: int
    n_dims: int = 0
    certified: str = ""
    said: str = ""
    foreign: bool = False  # whether `check` takes the coreset's own draws for those of another one
    judgement: Judgement | None = None
    chains: Convergence | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def alarm(self) -> bool:
        """Whether anything but "reliable" was said."""
        return self.said not in {RELIABLE, REWEIGHTED}

    @property
    def right(self) -> bool | None:
        """Whether the draws were right, where there are draws."""
        return None if self.judgement is None else self.judgement.right

    @property
    def false_reliable(self) -> bool:
        """Whether wrong draws were called reliable."""
        return not self.alarm and self.right is False

    @property
    def false_certificate(self) -> bool:
        """Whether the build called a coreset reliable whose draws are wrong."""
        return self.certified == RELIABLE and self.right is False and self.converged

    @property
    def converged(self) -> bool:
        """Whether there are draws, of which PyMC does not warn."""
        return self.chains is not None and self.chains.reached

    @property
    def hasty(self) -> bool:
        """Whether draws were called reliable as they are, of which PyMC warns."""
        return self.said == RELIABLE and not self.converged

    @property
    def false_alarm(self) -> bool:
        """Whether right draws, or a harmless model, were not accepted."""
        harmless = POSTERIORS[self.name].harmless and self.right is not False
        return self.alarm and (harmless or (self.right is True and self.converged))

    @property
    def outcome(self) -> str:
        """What the verdict was worth."""
        if self.false_reliable:
            return "**false reliable**"
        if not self.alarm:
            return "not converged" if self.hasty else "true"
        if self.false_alarm:
            return "false alarm"
        return "alarm" if self.right is None else "true alarm"


# -- one case --------------------------------------------------------------------------------------


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    began = sum(os.times()[:4])
    try:
        yield
    finally:
        seconds[step] = sum(os.times()[:4]) - began


def measure(name: str, seed: int, draws: int) -> Record:
    """Build a coreset in this process, sample it, and judge what is said of its draws."""
    truth, seconds = trust_truth.read()[name], dict[str, float]()
    model = POSTERIORS[name].model()
    n_dims = sum(np.size(value) for value in model.initial_point().values())
    record = Record(name=name, seed=seed, n_dims=n_dims, seconds=seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the verdict says it
        try:
            with _timed(seconds, "build"):
                coreset = build_coreset(model, random_seed=seed, progressbar=False)
            record = replace(record, certified=_certified(coreset))
            with _timed(seconds, "sample"):
                idata = coreset.sample(draws=draws, random_seed=seed, progressbar=False)
            drawn = _posterior(coreset, idata, truth, seed)
            record = replace(
                record, judgement=judge(drawn, truth), chains=convergence(drawn, truth)
            )
            with _timed(seconds, "check"):
                check = coreset.check(idata)
            said, foreign = _said(check), check.verdict.reason is Reason.FOREIGN
            record = replace(record, foreign=foreign and check.converged)
            if said == REWEIGHTED:
                idata = coreset.reweight(idata, random_seed=seed)
                most = float(idata["posterior"].attrs["psis_ess"])
                drawn = _posterior(coreset, idata, truth, seed)
                record = replace(record, judgement=judge(drawn, truth, most))
        except CoresetError as error:
            print(error, file=sys.stderr)
            said = f"refused: {type(error).__name__}"
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            said = f"crashed: {type(error).__name__}"
    return replace(record, said=said)


def _certified(coreset: Coreset) -> str:
    """What the build says; it needs no certificate for all distinct rows, which are exact."""
    return RELIABLE if coreset.certificate is None else _said(coreset.certificate)


def _said(check: Certificate) -> str:
    return check.verdict.level.lower()


def _posterior(
    coreset: Coreset, idata: xr.DataTree, truth: dict[str, Marginal], seed: int
) -> xr.Dataset:
    """Return draws of all judged variables, also those of levels if `sample` left them out."""
    posterior = idata["posterior"].to_dataset()
    missing = [name for name in variables(truth) if name not in posterior]
    if not missing:
        return posterior
    return posterior.merge(coreset.recover(idata, missing, random_seed=seed))


def guarded(name: str, seed: int, draws: int) -> Record:
    """Do the same in a process of its own, which is ended where it takes far too long."""
    try:
        return isolated(measure, LIMIT, name, seed, draws)
    except NotDoneError as error:
        return Record(name=name, seed=seed, said=f"crashed: {error}")


# -- the report ------------------------------------------------------------------------------------


def line_of(record: Record) -> list[str]:
    """Return the record's line of the table."""
    found, chains, seconds = record.judgement, record.chains, record.seconds
    return [
        record.name,
        str(record.n_dims or ""),
        "yes" if POSTERIORS[record.name].harmless else "",
        str(record.seed),
        record.certified,
        record.said,
        "" if found is None else "yes" if found.right else "no",
        record.outcome,
        "" if found is None else found.worst,
        *(("", "") if chains is None else (f"{chains.rhat:.3f}", f"{chains.ess:.0f}")),
        *(f"{seconds[step]:.1f}" if step in seconds else "" for step in STEPS),
    ]


def report(records: Sequence[Record]) -> str:
    """Return the table, and below it how often the verdict was false."""
    harmless = [record for record in records if POSTERIORS[record.name].harmless]
    false = sum(record.false_reliable for record in records)
    accepted = sum(not record.alarm for record in records)
    alarms = sum(record.false_alarm for record in harmless)
    certified = sum(record.false_certificate for record in records)
    hasty = sum(record.hasty for record in records)
    foreign = sum(record.foreign for record in records)
    return "\n".join(
        [
            markdown(HEADER, map(line_of, records)),
            "",
            f"False among {accepted} called reliable, of {len(records)} runs: {false}.",
            f"Called reliable by the build, with draws that agree and are wrong: {certified}.",
            f"Called reliable with an R-hat above 1.01 or an ESS below 400: {hasty}.",
            f"Own draws that agree, taken for those of another density: {foreign}.",
            f"False alarms among the {len(harmless)} runs of harmless posteriors: {alarms}.",
            "",
        ]
    )


def summary(records: Sequence[Record]) -> str:
    """Return the table of all posteriors.

    One line for the harmless ones that were always right and accepted, one for others of which that
    is true, and one for each of the rest.
    """
    groups: dict[str, list[Record]] = {}
    for name in dict.fromkeys(record.name for record in records):
        own = [record for record in records if record.name == name]
        harmless = POSTERIORS[name].harmless
        good = all(record.right and not record.alarm for record in own)
        kind = "harmless" if harmless else HARD
        groups.setdefault(kind if good else name, []).extend(own)
    lines = []
    for name, own in groups.items():
        n_models = len({record.name for record in own})
        dims = sorted({record.n_dims for record in own})
        lines.append([
            name.replace("|", r"\|") if name in POSTERIORS else f"{n_models} {name}",
            f"{dims[0]}" if len(dims) == 1 else f"{dims[0]} to {dims[-1]}",
            f"{sum(not record.alarm for record in own)} of {len(own)}",
            f"{sum(record.right is True for record in own)}",
            f"{sum(record.false_reliable for record in own)}",
        ])  # fmt: skip
    return markdown(("posterior", "D", "reliable", "right", "false"), lines)


def parsed() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--names", nargs="+", choices=POSTERIORS, default=list(POSTERIORS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--draws", type=int, default=1_000, help="more show more of the tails")
    parser.add_argument(
        "--truth", nargs="*", choices=POSTERIORS, help="compute the truth of these, or of all"
    )
    return parser.parse_args()


def main() -> None:
    """Compute the truth, or print the table."""
    options = parsed()
    if options.truth is not None:
        trust_truth.compute_all(options.truth or POSTERIORS)
        return
    if unknown := set(options.names) - set(trust_truth.read()):
        sys.exit(f"The truth is not known of {', '.join(sorted(unknown))}: compute it by --truth.")
    records = list[Record]()
    for name in options.names:
        for seed in options.seeds:
            records.append(guarded(name, seed, options.draws))
            print(" | ".join(line_of(records[-1])), flush=True)
            save(options.tables, "trust", summary(records))
    print(f"\n{report(records)}")


if __name__ == "__main__":
    main()
