"""Records of the benchmark of real models, and their tables."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from benchmarks.curves import markdown
from benchmarks.differences import Difference
from benchmarks.example_models import BUILD, FULL, SAMPLE
from pymc_coresets.diagnostics.judging import RHAT_CONVERGED

TOLERANCE = 0.01  # of build_coreset(), nats
RATIO = "all rows / (build + sample)"


def within(whole: str, part: str) -> str:
    """Return the name of a part within another part."""
    return f"{whole}: {part}"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One model: its coreset, what that cost, and how it compares with the full posterior."""

    name: str
    n_obs: int
    n_dims: int
    size: int
    n_rounds: int
    n_passes: float
    status: str
    warnings: list[str]
    verdict: str
    reliable: bool
    khat: float
    ess: float
    n_draws: int
    kl: float
    symmetrised_kl: float
    rhat: float
    n_divergences: int
    seconds: dict[str, float]
    processor: dict[str, float]
    draws: int
    full_cached: bool = False
    full_rhat: float = math.nan
    before: Difference | None = None
    after: Difference | None = None

    @property
    def ratio(self) -> float:
        """Seconds of the full run over those to build and sample the coreset."""
        return _ratio(self.seconds)

    @property
    def processor_ratio(self) -> float:
        """The same ratio of processor seconds."""
        return _ratio(self.processor)

    @property
    def shortfalls(self) -> list[str]:
        """Where the coreset falls short, in words; empty where it does not fall short."""
        found = []
        if self.symmetrised_kl > TOLERANCE:
            found.append(f"KL {self.symmetrised_kl:.2g} above {TOLERANCE:g}")
        if not self.reliable:
            found.append(self.verdict.partition(":")[0].lower())
        if self.n_divergences:
            found.append(f"{self.n_divergences} divergences")
        for label, difference in (("", self.before), ("reweighted: ", self.after)):
            if difference is not None and difference.beyond_noise:
                found.append(f"{label}{len(difference.beyond_noise)} components beyond noise")
        if self.full_rhat > RHAT_CONVERGED:
            found.append(f"all rows: R-hat {self.full_rhat:.2f}")
        if self.processor_ratio < 1:
            found.append("slower than all rows")
        return found


def _ratio(seconds: dict[str, float]) -> float:
    return seconds.get(FULL, math.nan) / (seconds[BUILD] + seconds[SAMPLE])


def read(path: Path) -> list[Record]:
    """Read the records that ``--json`` saved."""
    return [
        Record(**kept | {k: kept[k] and Difference(**kept[k]) for k in ("before", "after")})
        for kept in json.loads(path.read_text())
    ]


# Tables


def differences(difference: Difference | None) -> list[str]:
    if difference is None:
        return ["", ""]
    return [
        f"{largest:.2f} ({limit:.2f})"
        for largest, limit in (
            (difference.mean, difference.mean_limit),
            (difference.sd, difference.sd_limit),
        )
    ]


def quality_table(records: list[Record]) -> str:
    """Return a table of differences from the full posterior.

    In brackets is what noise alone exceeds in one of 20 tables.
    """
    headings = ["model", "N", "D", "rows", "rounds", "KL, both ways", "k-hat"]
    headings += ["mean shift / sd", "log sd ratio", "reweighted: mean shift / sd", "log sd ratio"]
    headings += ["all rows / coreset", "falls short"]
    rows = [
        [
            r.name,
            f"{r.n_obs:,}",
            str(r.n_dims),
            str(r.size),
            str(r.n_rounds),
            f"{r.symmetrised_kl:.2g}",
            f"{r.khat:.2f}",
            *differences(r.before),
            *differences(r.after),
            _ratios(r),
            "; ".join(r.shortfalls),
        ]
        for r in records
    ]
    return markdown(headings, rows)


def timing_table(records: list[Record]) -> str:
    """Return a table of wall time / processor time in seconds; * marks those of an earlier run."""
    names = list(dict.fromkeys(part for r in records for part in r.seconds))
    rows = []
    for whole in (name for name in names if name.count(": ") == 1):
        inner = within(whole, "")
        parts = [name for name in names if name.startswith(inner)]
        rows.append([whole, *(_seconds(r, whole) for r in records)])
        rows += [[f"– {n.removeprefix(inner)}", *(_seconds(r, n) for r in records)] for n in parts]
    rows.append([RATIO, *(_ratios(r) for r in records)])
    rows.append(["passes over the data, build", *(f"{r.n_passes:.1f}" for r in records)])
    return markdown(["seconds", *(r.name for r in records)], rows)


def _seconds(record: Record, part: str) -> str:
    if part not in record.seconds:
        return ""
    cell = f"{record.seconds[part]:.1f}"
    if part in record.processor:
        cell += f" / {record.processor[part]:.1f}"
    earlier = record.full_cached and part.startswith(FULL)
    return f"{cell} *" if earlier else cell


def _ratios(record: Record) -> str:
    if math.isnan(record.ratio):
        return ""
    return f"{record.ratio:.1f} / {record.processor_ratio:.1f}"


def report(records: list[Record]) -> None:
    print(quality_table(records), timing_table(records), sep="\n\n")
    for record in records:
        for message in record.warnings:
            print(f"\n{record.name}: {message}")
