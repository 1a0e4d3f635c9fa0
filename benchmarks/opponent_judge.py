"""How far a way's draws are from a reference, and whether the way said so."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from benchmarks.differences import difference_of
from benchmarks.opponent_task import Answer
from pymc_coresets import compare
from pymc_coresets.reading.draws import Draws

__all__ = ["NOTICEABLE", "Reference", "Verdict", "judge", "reference_for"]

NOTICEABLE = 0.1  # sd, and of the logarithm of a ratio of sds
CONFIDENCE = 0.999  # that no equal posterior is called wrong: the table makes a hundred comparisons


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """Draws that stand for the truth, and which way they came."""

    way: str
    answer: Answer

    @property
    def said(self) -> str:
        quality = "" if self.answer.sound else " (doubtful)"
        return f"{self.way}, {self.answer.effective:,.0f} effective draws{quality}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The worst differences from the reference.

    Parameters
    ----------
    shift, shift_noise : float
        Largest difference of means, in sds of the reference, and what the largest of all variables
        exceeds in one of 1,000 comparisons of equal posteriors.
    ratio, ratio_noise : float
        Ratio of sds that is furthest from 1, and the same limit for its logarithm.
    compared : bool
        False where there was nothing to compare with.
    sound : bool
        Whether the reference is good enough to call others wrong.
    """

    shift: float = np.nan
    shift_noise: float = np.nan
    ratio: float = np.nan
    ratio_noise: float = np.nan
    compared: bool = True
    sound: bool = True

    @property
    def wrong(self) -> bool:
        """Whether a mean is off by 0.1 sd, or an sd by a tenth, and by more than noise."""
        return (
            self.shift > max(self.shift_noise, NOTICEABLE)
            or abs(np.log(self.ratio)) > max(self.ratio_noise, NOTICEABLE)
        )  # fmt: skip

    def told(self, *, warned: bool, finished: bool = True) -> str:
        """Whether the way was right, and warned where it was not.

        Unclear where noise hides differences of a standard deviation, or the reference is unsound.
        """
        if not self.compared:
            return "warned" if warned else ""
        hidden_by_noise = not self.wrong and self.shift_noise > 1.0
        if hidden_by_noise or (self.wrong and not self.sound):
            return "unclear"
        if not self.wrong:
            return "right, but warned" if warned else "right"
        if not finished:
            return "not finished"
        return "wrong, and said so" if warned else "WRONG, SILENT"


def reference_for(way: str, references: Sequence[Reference]) -> Reference | None:
    """Return the best of the references that do not come from the way itself.

    Chains before importance samples, which cannot see what their proposal misses; then those with
    more effective draws.  Unsound ones only where there is no other.
    """
    others = [r for r in references if r.way != way and r.answer.draws is not None]
    return max(others, key=_rank, default=None)


def _rank(reference: Reference) -> tuple[bool, bool, float]:
    answer = reference.answer
    return answer.sound, answer.n_chains > 1, float(np.nan_to_num(answer.effective))


def judge(answer: Answer, reference: Reference | None) -> Verdict:
    """Compare the variables that both have."""
    if answer.draws is None or reference is None or reference.answer.draws is None:
        return Verdict(compared=False)
    comparison = compare(full=_dataset(reference.answer), approximation=_dataset(answer))
    found = difference_of(comparison, confidence=CONFIDENCE)
    return Verdict(
        shift=found.mean,
        shift_noise=found.mean_limit,
        ratio=float(np.exp(comparison.largest_sd_change.value)),
        ratio_noise=found.sd_limit,
        sound=reference.answer.sound,
    )


def _dataset(answer: Answer) -> xr.Dataset:
    assert answer.draws is not None
    draws = Draws(dict(answer.draws.values))
    dataset = draws.to_datatree(n_chains=answer.n_chains)["posterior"].to_dataset()
    if answer.n_chains == 1 and np.isfinite(answer.effective):
        dataset.attrs["psis_ess"] = answer.effective
    return dataset
