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
from pymc_coresets.diagnostics.lines import Probes
from pymc_coresets.diagnostics.opinion import SecondOpinion
from pymc_coresets.diagnostics.shifts import Shift
from pymc_coresets.display.report import as_html, as_text

TOLERANCE = 0.01
"""Symmetrised KL divergence (nats) up to which draws can be used as they are, by default.

The mean of a normal posterior is then off by a tenth of its standard deviation at most.
"""

RHAT_CONVERGED = 1.01
"""R-hat above which chains disagree (Vehtari et al. 2021)."""

_SMALL = 0.4  # nats: no draw counts half as much again as they do on average

_OTHER_MODES = (
    "importance_draws() draws from all, and sample() begins chains in all of them, where there are "
    "as many."
)

_BETWEEN_MODES = (
    "Not to be used as they are: the full posterior has {} modes, and chains that stay in one each "
    "never agree. importance_draws() draws from all. Where modes are images of each other, a "
    "constraint such as an order of the entries leaves one of them."
)

MIN_ESS = 100.0
"""Effective sample size at which the standard error of a mean is a tenth of its variable's sd."""

ENOUGH_ESS = 400.0
"""Bulk and tail effective sample size of all chains together from which R-hat can be trusted."""

NEARLY_ALL = 0.75
"""Effective sample size, as a share of the draws, at which no few of them carry the weights."""

MISFIT = 5.0
"""Standard errors by which draws of a density are off once in a million times."""


class _Words(NamedTuple):
    """What is said of draws, by what they come from."""

    title: str
    posterior: str
    better: str
    correction: str

    @property
    def advice(self) -> str:
        """What is better, as a sentence of its own."""
        return self.better[0].upper() + self.better[1:]


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
        Variance of the log-ratios, to first order KL(coreset || full) + KL(full || coreset); its
        error allows for a heavy tail of their squares.
    largest : float
        Largest distance of a log-ratio from their mean, in nats.
    tolerance : float
        Symmetrised KL divergence in nats up to which the draws can be used as they are.
    probes : Probes, optional
        What lines through the draws show where there are no draws; None where nobody looked.
    modes : SeenModes, optional
        The modes of the full posterior that a search found, and which of them the draws visited;
        None where they were not looked for.
    caveat : str
        What the numbers cannot see, and what to do, in words: nothing is reliable then.

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
    largest: float = math.inf
    tolerance: float = TOLERANCE
    probes: Probes | None = None
    modes: SeenModes | None = None
    caveat: str = ""

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
    def divergence(self) -> float:
        """Symmetrised KL divergence in nats: at the draws, with two errors, and beyond them."""
        at_draws = self.symmetrised_kl + 2 * self.symmetrised_kl_mcse
        return max(at_draws, self.kl + 2 * self.kl_mcse) + self.outside

    @property
    def negligible(self) -> bool:
        """Whether the divergence is within the tolerance, and nothing speaks for a heavier tail.

        Pareto k-hat must be below its limit, unless no draw counts half as much again as they do on
        average, and lines show nothing beyond.
        """
        is_small = self.largest <= _SMALL and not self.outside
        return self.divergence <= self.tolerance and (is_small or self._has_light_tail)

    @property
    def _lacks_a_tail(self) -> bool:
        """Whether weights cannot mend what is missed along a coordinate."""
        return self.probes is not None and self.probes.most > self.tolerance

    @property
    def outside(self) -> float:
        """What the draws miss beyond their reach, in nats (`Probes`); 0 where nothing is known."""
        return 0.0 if self.probes is None else self.probes.outside

    @property
    def _has_light_tail(self) -> bool:
        return self.pareto_khat < khat_threshold(self.n_draws)

    @property
    def _is_foreign(self) -> bool:
        """Whether these are no draws of the approximate posterior."""
        probes = self.probes
        return probes is not None and (bool(probes.constant) or not self._misfit <= MISFIT)

    @property
    def _misfit(self) -> float:
        return 0.0 if self.probes is None else self.probes.misfit

    @property
    def weights_serve(self) -> bool:
        """Whether importance weights turn the draws into those of the full posterior, if enough.

        Of independent draws, most of which count, the tail of the weights says nothing: those of a
        mixture come in groups.
        """
        nearly_all = self.ess >= NEARLY_ALL * self.n_draws
        return self.negligible or self._has_light_tail or nearly_all

    @property
    def needs_reweighting(self) -> bool:
        """Whether draws, as they are, differ noticeably from the full posterior's."""
        return not self.negligible

    @property
    def reliable(self) -> bool:
        """Whether draws can stand for the full posterior, re-weighted if necessary."""
        reached = self._has_light_tail and not self._lacks_a_tail
        enough = reached and self.ess >= MIN_ESS
        spoilt = self._unseen or self._is_foreign or self.caveat
        return (self.negligible or enough) and not spoilt

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
        if self._is_foreign:
            return self._why_foreign()
        if self.pareto_khat >= KHAT_USELESS and not self.negligible:
            return (
                "Not to be used: a few draws carry all the weight, so neither the draws nor the "
                f"estimates of KL can be trusted. {words.advice}."
            )
        if doubt := self.doubt:
            return f"Doubtful: {doubt}"
        if self.reliable:
            return self._why_reliable()
        if self._has_light_tail:
            return (
                f"Doubtful: the re-weighted draws have an effective sample size of only "
                f"{self.ess:.0f}. Sample more draws, or {words.better}."
            )
        return (
            "Doubtful: the importance weights have a heavy tail, so re-weighting improves the "
            f"draws without making them right. {words.advice}; or sample more draws."
        )

    @property
    def doubt(self) -> str:
        """What neither the draws nor their weights can know; empty where nothing is known of it."""
        words = self._words
        if self.modes is not None and self._unseen:
            return (
                f"the full posterior has {self.modes.n_modes} modes. These draws know nothing of "
                f"the one {self.modes.listed(self._unseen)}. {_OTHER_MODES}"
            )
        if self.caveat:
            return self.caveat
        if self.probes is not None and self._lacks_a_tail:
            return (
                f"the full posterior reaches further along {self.probes.where} than the "
                f"{words.posterior} and its draws, which no weights can mend. {words.advice}."
            )
        return ""

    def _why_reliable(self) -> str:
        words = self._words
        where = "" if self.modes is not None else " around this mode (others were not looked for)"
        if self.probes is None and self.divergence:
            where += " at the draws (tails were not looked at)"
        if not self.divergence:  # to the last digit
            return (
                f"Reliable{where}: exact. The {words.posterior} is that of all rows, and the draws "
                "can be used as they are."
            )
        if self.negligible:
            return (
                f"Reliable{where}: the draws can be used as they are; the symmetrised KL "
                f"divergence of their posterior from the full one is at most {self.tolerance:g} "
                "nats."
            )
        return (
            f"Reliable once re-weighted{where}: the {words.posterior} differs noticeably from the "
            f"full one, but its importance weights correct that. {self._worth}{words.correction}"
        )

    @property
    def _worth(self) -> str:
        """What the difference means for the variables, where that is known."""
        return ""

    def _why_foreign(self) -> str:
        probes, words = self.probes, self._words
        assert probes is not None, "whose lines say so"
        if probes.constant:
            return (
                f"Not to be used: {probes.constant} is the same in all draws, which none of the "
                f"{words.posterior} are. Sample it again."
            )
        along = f" along {probes.misfit_where}" if probes.misfit_where else ""
        return (
            f"Not to be used: these are not draws of the {words.posterior}. By its own density, "
            f"they are off by {probes.misfit:.0f} standard errors{along}. Sample it again, or "
            "longer."
        )

    @property
    def facts(self) -> dict[str, str]:
        """What is shown above the verdict: names, and numbers in words."""
        limit = khat_threshold(self.n_draws)
        return {
            f"KL({self._subject} || full)": f"{self.kl:.2g} ± {self.kl_mcse:.1g} nats",
            "symmetrised KL": f"{self.symmetrised_kl:.2g} ± {self.symmetrised_kl_mcse:.1g} nats "
            f"(tolerance {self.tolerance:g})",
            "beyond the draws": "not looked at" if self.probes is None else self.probes.in_short,
            "Pareto k-hat": f"{self.pareto_khat:.2f} (reliable below {limit:.2g})",
            "ESS re-weighted": f"{self.ess:.0f} of {self.n_draws} draws",
            "modes": "not looked for" if self.modes is None else self.modes.words,
        }

    def __repr__(self) -> str:
        return as_text(self._title, self.facts, self.verdict)

    def _repr_html_(self) -> str:
        return as_html(self._title, self.facts, self.verdict)

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
        "largest": float(np.abs(log_ratios - log_ratios.mean()).max()),
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
    if found.weights_serve:
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
    pareto_khat, ess, n_draws, kl, kl_mcse, symmetrised_kl, symmetrised_kl_mcse, largest, \
tolerance, probes
        As of a `Certificate`.
    rhat : float
        Largest R-hat over the variables; NaN for a single chain.
    ess_bulk : float
        Smallest bulk effective sample size over the variables.
    n_divergences : int or None
        Divergent transitions of NUTS; None where it was not needed.
    ess_tail : float
        Smallest effective sample size of the 5 and 95 % quantiles.
    n_chains : int
        Each of which must be worth a hundred draws, as PyMC's own warnings have it.
    mean_shift, sd_shift : Shift or None
        By how much the posterior of all rows moves the mean of a free variable at most, and how it
        changes a standard deviation at most, by importance weights.
    second_opinion : SecondOpinion or None
        What PyMC's own log-densities say of the divergence, where they were asked.
    modes, caveat
        As of a `Certificate`.
    subject : {"coreset", "approximation", "polynomial"}
        What was drawn from.  Of the independent draws of an approximation, as `check_approximation`
        judges them, nothing has to converge but their number.

    Notes
    -----
    The verdict takes these in their order.  Draws that the density of the approximate posterior
    contradicts are not its own.  Chains that have not converged, by PyMC's limits, cannot be
    judged.  A symmetrised KL divergence within the tolerance, at the draws and on lines that lead
    beyond them, makes the draws reliable *as they are*; otherwise Pareto k-hat decides whether
    *re-weighting* reaches the full posterior.  Draws that know nothing of a mode that a search
    found are doubtful whatever the numbers say, none of which can see it.

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
    ess_tail: float = math.inf
    n_chains: int = 4
    mean_shift: Shift | None = None
    sd_shift: Shift | None = None
    second_opinion: SecondOpinion | None = None
    subject: Literal["coreset", "approximation", "polynomial"] = "coreset"

    @property
    def _subject(self) -> str:
        return self.subject

    @property
    def _title(self) -> str:
        return self._words.title

    @property
    def converged(self) -> bool:
        """Whether the chains agree, and hold enough draws for that to mean something."""
        enough = max(ENOUGH_ESS, 100.0 * self.n_chains)
        is_long = min(self.ess_bulk, self.ess_tail) >= enough
        return is_long and not self.rhat > RHAT_CONVERGED

    @property
    def _misfit(self) -> float:
        """That of as many independent draws as these are worth, if that is less than 100."""
        return super()._misfit * math.sqrt(min(self.ess_bulk / 100.0, 1.0))

    @property
    def weights_serve(self) -> bool:
        """Whether importance weights turn the draws into those of the full posterior."""
        return self.negligible or self._has_light_tail

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
        if self.converged or hopeless or self._is_foreign:
            return super()._judgement()
        if self.modes is not None and self.modes.n_modes > 1:
            return _BETWEEN_MODES.format(self.modes.n_modes)
        if self.rhat > RHAT_CONVERGED and min(self.ess_bulk, self.ess_tail) < ENOUGH_ESS / 4:
            return (
                "Not to be used: the chains are stuck, and do not agree on the "
                f"{self._words.posterior}. Reparametrise the model (for hierarchies, "
                "non-centred), or use another sampler."
            )
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
            else f"{self.rhat:.3f} (converged up to {RHAT_CONVERGED})",
            "ESS (smallest)": f"{self.ess_bulk:.0f} in the bulk, {self.ess_tail:.0f} in the tails",
            **self._shifts,
            **({} if n_divergences is None else {"divergences": str(n_divergences)}),
            **({} if asked is None else {"PyMC's densities": asked.in_short}),
        }

    @property
    def _shifts(self) -> dict[str, str]:
        if self.mean_shift is None or self.sd_shift is None:
            return {}
        mean, sd = self.mean_shift, self.sd_shift
        return {
            "largest shift": f"mean of {mean.name} by {mean.size:.2g} ± {mean.error:.1g} sd",
            "largest change": f"sd of {sd.name} by {sd.size:.1%} ± {sd.error:.1%}",
        }

    @property
    def _worth(self) -> str:
        if self.mean_shift is None:
            return ""
        largest = self.mean_shift
        return f"They move no mean by more than {abs(largest.size):.2g} sd ({largest.name}). "
