"""The verdict on a coreset posterior: thresholds, and what they mean in words."""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from pymc_coresets.diagnostics.importance import (
    KHAT_USELESS,
    SmoothedWeights,
    estimate_divergences,
    khat_threshold,
    pareto_smooth,
)
from pymc_coresets.diagnostics.known_posterior import SeenModes
from pymc_coresets.diagnostics.opinion import SecondOpinion
from pymc_coresets.display.facts import facts_text
from pymc_coresets.display.page import facts_html

KL_NEGLIGIBLE = 0.01
"""KL divergence (nats) below which the draws can be used as they are.

By Pinsker's inequality no probability is then off by more than ``sqrt(0.01 / 2)`` = 0.07, and the
mean of a Gaussian by no more than 0.14 standard deviations.
"""

RHAT_CONVERGED, RHAT_HOPELESS = 1.01, 1.05
"""R-hat above which chains that are long enough disagree, and any (Vehtari et al. 2021)."""

_OTHER_MODES = (
    "importance_draws() draws from all, and sample() begins chains in all of them, where there are "
    "as many."
)

_BETWEEN_MODES = (
    "Not to be used as they are: the full posterior has {} modes, and chains that stay in one each "
    "never agree. importance_draws() draws from all. Where modes are images of each other, a "
    "constraint such as an order of the entries leaves one of them."
)

_RHAT_NOISE = 16.0  # over the bulk ESS: what R-hat, largest of a hundred, exceeds 1 by at rest

MIN_ESS = 100.0
"""Effective sample size at which the standard error of a mean is a tenth of its variable's sd."""


class _Words(NamedTuple):
    """What is said of draws, by what they come from."""

    title: str
    posterior: str
    better: str
    correction: str


_WORDS = {
    "coreset": _Words(
        title="Check of a coreset posterior",
        posterior="coreset posterior",
        better="build a larger coreset",
        correction="Use reweight(), or a larger size.",
    ),
    "approximation": _Words(
        title="Check of an approximation",
        posterior="approximate posterior",
        better="fit a richer family, such as one with correlations, or build a coreset",
        correction="Resample the draws by them, or fit a richer family.",
    ),
    "polynomial": _Words(
        title="Check of a polynomial posterior",
        posterior="approximate posterior",
        better="use another degree or radius, or build_coreset, which needs no polynomial",
        correction="Use reweight().",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """How far a coreset's posterior is from the full one, by held-out draws of it.

    Parameters
    ----------
    pareto_khat : float
        Shape of the tail of the importance ratios: they are reliable below 0.7 (a little less for
        few draws) and useless at 1 or more. ``-inf`` for an exact coreset.
    ess : float
        Effective sample size of the draws once re-weighted to the full posterior; of a `Check`
        with the draws' own autocorrelation.
    n_draws : int
        Number of draws that were evaluated, over all chains.
    kl, kl_mcse : float
        KL(coreset || full) in nats and its Monte Carlo standard error.
    symmetrised_kl, symmetrised_kl_mcse : float
        Variance of the log-ratios, to first order KL(coreset || full) + KL(full || coreset).
    modes : SeenModes, optional
        The modes of the full posterior that a search found, and which of them the draws visited;
        None where they were not looked for.

    Notes
    -----
    None of the other numbers can see a mode that the coreset posterior misses altogether.

    Examples
    --------
    >>> Certificate.of(np.zeros(400)).negligible
    True
    """

    pareto_khat: float
    ess: float
    n_draws: int
    kl: float
    kl_mcse: float
    symmetrised_kl: float
    symmetrised_kl_mcse: float
    modes: SeenModes | None = None

    @classmethod
    def of(cls, log_ratios: ArrayLike) -> Self:
        """Judge log-ratios of the full over the coreset's posterior density.

        Parameters
        ----------
        log_ratios : array_like of shape (n_draws,) or (n_chains, n_draws)
            In nats, up to a constant.

        Raises
        ------
        InvalidDataError
            If they are not finite, or fewer than 30.
        """
        return cls(**importance_figures(np.atleast_2d(np.asarray(log_ratios, dtype=np.float64))))

    @property
    def negligible(self) -> bool:
        """Whether both estimates of KL(coreset || full) plus two errors lie below 0.01 nats."""
        direct = self.kl + 2 * self.kl_mcse
        from_variance = (self.symmetrised_kl + 2 * self.symmetrised_kl_mcse) / 2
        return max(direct, from_variance) < KL_NEGLIGIBLE

    @property
    def needs_reweighting(self) -> bool:
        """Whether draws, as they are, differ noticeably from the full posterior's."""
        return not self.negligible

    @property
    def reliable(self) -> bool:
        """Whether draws can stand for the full posterior, re-weighted if necessary."""
        weights_serve = self.pareto_khat < khat_threshold(self.n_draws) and self.ess >= MIN_ESS
        return (self.negligible or weights_serve) and not self._unseen

    @property
    def _subject(self) -> str:
        return "coreset"

    @property
    def _words(self) -> _Words:
        return _WORDS[self._subject]

    @property
    def _unseen(self) -> list[int]:
        return [] if self.modes is None else self.modes.unseen

    @property
    def verdict(self) -> str:
        """What the numbers mean and what to do, in words."""
        n_modes = 0 if self.modes is None else self.modes.n_modes
        several = (
            f" The posterior has {n_modes} modes, between which NUTS hardly moves: check() says "
            "which of them its draws know."
        )
        return self._judgement() + (several if n_modes > 1 else "")

    def _judgement(self) -> str:
        words = self._words
        better = words.better[0].upper() + words.better[1:]
        if self.pareto_khat >= KHAT_USELESS and not self.negligible:
            return (
                "Not to be used: a few draws carry all the weight, so neither the draws nor the "
                f"estimates of KL can be trusted. {better}."
            )
        if self.modes is not None and self._unseen:
            return (
                f"Doubtful: the full posterior has {self.modes.n_modes} modes. These draws know "
                f"nothing of the one {self.modes.listed(self._unseen)}. {_OTHER_MODES}"
            )
        if self.symmetrised_kl == 0:  # to the last digit
            return (
                f"Reliable: exact. The {words.posterior} is that of all rows, and the draws can be "
                "used as they are."
            )
        if self.negligible:
            return (
                "Reliable: the draws can be used as they are; their posterior differs from the "
                f"full one by less than {KL_NEGLIGIBLE} nats."
            )
        if self.reliable:
            return (
                f"Reliable once re-weighted: the {words.posterior} differs noticeably from the "
                f"full one, but its importance weights correct that. {words.correction}"
            )
        if self.pareto_khat < khat_threshold(self.n_draws):
            return (
                f"Doubtful: the re-weighted draws have an effective sample size of only "
                f"{self.ess:.0f}. Sample more draws, or {words.better}."
            )
        return (
            "Doubtful: the importance weights have a heavy tail, so re-weighting improves the "
            f"draws without making them right. {better}; or sample more draws."
        )

    @property
    def facts(self) -> dict[str, str]:
        """What is shown above the verdict: names, and numbers in words."""
        limit = khat_threshold(self.n_draws)
        return {
            f"KL({self._subject} || full)": f"{self.kl:.2g} ± {self.kl_mcse:.1g} nats",
            "symmetrised KL": f"{self.symmetrised_kl:.2g} ± {self.symmetrised_kl_mcse:.1g} nats",
            "Pareto k-hat": f"{self.pareto_khat:.2f} (reliable below {limit:.2g})",
            "ESS re-weighted": f"{self.ess:.0f} of {self.n_draws} draws",
            "modes": "not looked for" if self.modes is None else self.modes.words,
        }

    def __repr__(self) -> str:
        return facts_text(self._title, self.facts, self.verdict)

    def _repr_html_(self) -> str:
        return facts_html(self._title, self.facts, verdict=self.verdict, plain=repr(self))

    @property
    def _title(self) -> str:
        return "Certificate of a coreset"


def importance_figures(
    log_ratios: np.ndarray, smoothed: SmoothedWeights | None = None
) -> dict[str, Any]:
    """Return the fields of a `Certificate` for log-ratios of shape (n_chains, n_draws)."""
    smoothed = pareto_smooth(log_ratios) if smoothed is None else smoothed
    found = estimate_divergences(log_ratios, smoothed)
    return {
        "pareto_khat": smoothed.pareto_khat,
        "ess": smoothed.ess,
        "n_draws": log_ratios.size,
        "kl": found.kl,
        "kl_mcse": found.kl_mcse,
        "symmetrised_kl": found.symmetrised_kl,
        "symmetrised_kl_mcse": found.symmetrised_kl_mcse,
    }


def verdict_on_weights(found: Certificate) -> str:
    """Say what draws are worth that were resampled by their importance weights.

    Examples
    --------
    >>> verdict_on_weights(Certificate.of(np.zeros(400)))
    'Reliable: resampled draws of the full posterior, worth 400 independent ones.'
    """
    if isinstance(found, Check) and not found.converged:
        return "Not to be used: the draws that were resampled have not converged. Sample longer."
    worth = f"worth {found.ess:.0f} independent ones"
    if found.negligible or found.pareto_khat < khat_threshold(found.n_draws):
        few = found.ess < MIN_ESS and not found.negligible
        kind = "Doubtful: few" if few else "Reliable:"
        return f"{kind} resampled draws of the full posterior, {worth}."
    heavy = f"the importance weights have a heavy tail (Pareto k-hat {found.pareto_khat:.2f})"
    if found.pareto_khat >= KHAT_USELESS:
        return f"Not to be used: {heavy}, and a few draws carry all of them."
    return f"Doubtful: {heavy}."


@dataclass(frozen=True, kw_only=True, repr=False)
class Check(Certificate):
    """What the draws of a coreset posterior say about its distance from the full posterior.

    Parameters
    ----------
    pareto_khat, ess, n_draws, kl, kl_mcse, symmetrised_kl, symmetrised_kl_mcse
        As of a `Certificate`.
    rhat : float
        Largest R-hat over the variables; NaN for a single chain.
    ess_bulk : float
        Smallest bulk effective sample size over the variables.
    n_divergences : int or None
        Divergent transitions of NUTS; None where it was not needed.
    ess_folded : float
        Smallest effective sample size of a variable's distance from its median, which R-hat
        compares between chains, too.
    second_opinion : SecondOpinion or None
        What PyMC's own log-densities say of the divergence, where they were asked.
    modes : SeenModes, optional
        As of a `Certificate`.
    subject : {"coreset", "approximation", "polynomial"}
        What was drawn from.  Of the independent draws of an approximation, as `check_approximation`
        judges them, nothing has to converge but their number.

    Notes
    -----
    The verdict takes three things in this order. Chains that have not converged cannot be judged.
    A KL divergence that is negligible by both estimates makes the draws reliable *as they are*,
    whatever the tail: a heavy tail of ratios that are all close to one does no harm (rounding
    errors have heavy tails). Otherwise Pareto k-hat decides whether *re-weighting* reaches the
    full posterior. Draws that know nothing of a mode that a search found are doubtful whatever the
    numbers say, none of which can see it.

    Examples
    --------
    >>> check = Check(
    ...     pareto_khat=0.2, ess=900.0, n_draws=1000, kl=0.05, kl_mcse=0.004, symmetrised_kl=0.1,
    ...     symmetrised_kl_mcse=0.01, rhat=1.001, ess_bulk=800.0, n_divergences=0,
    ... )
    >>> check.reliable, check.needs_reweighting
    (True, True)
    """

    rhat: float
    ess_bulk: float
    n_divergences: int | None
    ess_folded: float = math.inf
    second_opinion: SecondOpinion | None = None

    subject: Literal["coreset", "approximation", "polynomial"] = "coreset"

    @property
    def _subject(self) -> str:
        return self.subject

    @property
    def _title(self) -> str:
        return self._words.title

    @property
    def rhat_limit(self) -> float:
        """R-hat up to which chains of such effective sizes agree: its own noise, 1.01 to 1.05.

        With m chains that have the same distribution, R-hat - 1 is about (X / (2m - 1) - 1) m / ESS
        for X with a chi-squared distribution of 2m - 1 degrees of freedom.  The largest of a
        hundred components at four chains exceeds 16 / ESS once in a thousand times.  Chains that
        really disagree have a small ESS, which counts the variance between chains.  R-hat is the
        larger of two, of the values and of their distances from the median: so is the noise.
        """
        ess = max(min(self.ess_bulk, self.ess_folded), 1.0)
        return min(max(RHAT_CONVERGED, 1 + _RHAT_NOISE / ess), RHAT_HOPELESS)

    @property
    def converged(self) -> bool:
        """Whether the chains agree and hold enough draws to be judged."""
        return not self.rhat > self.rhat_limit and self.ess_bulk >= MIN_ESS

    @property
    def reliable(self) -> bool:
        """Whether the draws can stand for the full posterior, re-weighted if necessary."""
        return self.converged and super().reliable

    @property
    def verdict(self) -> str:
        """What the numbers mean and what to do, in words."""
        sentences = [self._judgement()]
        if np.isnan(self.rhat) and self.subject != "approximation":
            sentences.append("A single chain cannot show whether it converged: sample two or more.")
        if self.n_divergences:
            sentences.append(
                f"The sampler reported {self.n_divergences} divergences: reparametrise the model, "
                "or raise target_accept."
            )
        return " ".join(sentences)

    def _judgement(self) -> str:
        hopeless = self.pareto_khat >= KHAT_USELESS and not self.negligible
        if self.converged or hopeless:
            return super()._judgement()
        if self.modes is not None and self.modes.n_modes > 1:
            return _BETWEEN_MODES.format(self.modes.n_modes)
        return (
            f"Not to be used yet: the draws have not converged to the {self._words.posterior}, so "
            "that its distance from the full one cannot be judged. Sample longer."
        )

    @property
    def facts(self) -> dict[str, str]:
        """What is shown above the verdict: names, and numbers in words."""
        n_divergences, asked = self.n_divergences, self.second_opinion
        return super().facts | {
            "R-hat (largest)": "needs two chains"
            if np.isnan(self.rhat)
            else f"{self.rhat:.3f} (converged below {self.rhat_limit:.3g})",
            "bulk ESS (smallest)": f"{self.ess_bulk:.0f}",
            **({} if n_divergences is None else {"divergences": str(n_divergences)}),
            **({} if asked is None else {"PyMC's densities": asked.in_short}),
        }
