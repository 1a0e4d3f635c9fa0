"""The verdict on a coreset posterior: thresholds, and what they mean in words."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from pymc_coresets.diagnostics.importance import (
    KHAT_USELESS,
    SmoothedRatios,
    khat_threshold,
    pareto_smooth,
)
from pymc_coresets.diagnostics.known_posterior import BETWEEN_MODES, NOT_SOUGHT, SeenModes
from pymc_coresets.diagnostics.lines import NO_PROBES, Probes
from pymc_coresets.diagnostics.posterior_draws import NO_COPIES, Copies, Shift
from pymc_coresets.diagnostics.verdicts import Level, Reason, Verdict, doubts_of_levels
from pymc_coresets.display import as_html, as_text, counted

TOLERANCE = 0.01
"""Symmetrised KL divergence (nats) up to which draws can be used as they are, by default.

The mean of a normal posterior is then off by a tenth of its standard deviation at most.
"""

RHAT_CONVERGED = 1.01
"""R-hat above which chains disagree (Vehtari et al. 2021)."""

MIN_ESS = 100.0
"""Effective sample size at which the standard error of a mean is a tenth of its variable's sd."""

ENOUGH_ESS = 400.0
"""Bulk and tail effective sample size of all chains together from which R-hat can be trusted.

Monte Carlo standard errors are 5 % of the posterior sd there.
"""

NEARLY_ALL = 0.75
"""Effective sample size, as a share of the draws, at which no few of them carry the weights."""

MOST_DIVERGENT = 0.001
"""Share of divergent transitions above which NUTS does not enter a part of the posterior.

The neck of a funnel with 5 % of the mass was left out with 2 in 1,000, R-hat of 1.008 and an ESS of
500 (Betancourt 2017, https://arxiv.org/abs/1701.02434).
"""

MOST_COPIED = 0.05
"""Share of copies among the draws up to which effective sample sizes are right within 5 %."""


class _Words(NamedTuple):
    """Wording of the diagnostics for one kind of draws."""

    name: str
    title: str
    posterior: str
    better: str
    correction: str

    @property
    def advice(self) -> str:
        """`better`, as a sentence."""
        return f"{self.better[0].upper()}{self.better[1:]}."


_WORDS = {
    "coreset": _Words(
        name="coreset",
        title="Check of a coreset posterior",
        posterior="coreset posterior",
        better="build a larger coreset",
        correction="Use reweight(), or a larger size.",
    ),
    "approximation": _Words(
        name="approximation",
        title="Check of an approximation",
        posterior="approximate posterior",
        better="fit a richer family, such as one with correlations, or build a coreset",
        correction="Resample the draws by them, or fit a richer family.",
    ),
    "polynomial": _Words(
        name="polynomial",
        title="Check of a polynomial posterior",
        posterior="approximate posterior",
        better="use another degree or radius, or build_coreset, which needs no polynomial",
        correction="Use reweight().",
    ),
}


#: Errors of integrals, in nats, up to which they are exact.
ROUNDING = 1e-12
#: Nats by which log-ratios may differ: a divergence at the limit of 0.01 by a tenth at most.
HARMLESS = 0.005


@dataclass(frozen=True, kw_only=True, repr=False)
class SecondOpinion:
    """Divergence of an approximate posterior by PyMC's own log-densities.

    Parameters
    ----------
    by_pymc, by_us : float
        Variance of the log-ratios of the full over the approximate posterior density at the same
        draws, in nats: to first order the symmetrised KL divergence.
    difference : float
        Largest difference between the log-ratios, both centred, in nats.
    n_draws : int
        At how many draws: those where PyMC's log-densities are finite.

    Examples
    --------
    >>> SecondOpinion(by_pymc=0.0012, by_us=0.0012, difference=3e-11, n_draws=30)
    Second opinion
      symmetrised KL   0.0012 nats by PyMC's own log-densities
      as stated by us  0.0012 nats at the same 30 draws
      log-ratios       differ by at most 3e-11 nats
    """

    by_pymc: float
    by_us: float
    difference: float
    n_draws: int

    @property
    def in_short(self) -> str:
        """Summary in a few words."""
        if not self.n_draws:
            return "not finite at any draw"
        if self.difference > HARMLESS:  # as single log-likelihoods in float32 may
            return f"differ by up to {self.difference:.1g} nats, at {self.n_draws} draws"
        return f"agree at {self.n_draws} draws, to {self.difference:.1g} nats"

    def __repr__(self) -> str:
        rows = {
            "symmetrised KL": f"{self.by_pymc:.2g} nats by PyMC's own log-densities",
            "as stated by us": f"{self.by_us:.2g} nats at the same {self.n_draws} draws",
            "log-ratios": f"differ by at most {self.difference:.1g} nats",
        }
        return as_text("Second opinion", rows)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Distance of a coreset's posterior from the full one, from held-out draws of it.

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
    probes : Probes
        What lines through the draws show beyond them; by default, there were no lines.
    modes : SeenModes
        The modes of the full posterior that a search found, and which of them the draws visited; by
        default, none were looked for.
    caveat : str
        Reason why the numbers are insufficient, with a remedy; the verdict is then not "Reliable".
    node_error : float
        Divergence, in nats, that integrals over the variables of units may have added; 0 if they
        are exact.

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
    probes: Probes = NO_PROBES
    modes: SeenModes = NOT_SOUGHT
    caveat: str = ""
    node_error: float = 0.0

    _of_independent_draws: ClassVar[bool] = True

    @classmethod
    def of(cls, log_ratios: ArrayLike | SmoothedRatios, **others: object) -> Self:
        """Judge log-ratios of the full over the coreset's posterior density.

        Parameters
        ----------
        log_ratios : array_like of shape (n_draws,) or (n_chains, n_draws), or SmoothedRatios
            In nats, up to a constant.
        **others
            Fields that they do not give.

        Raises
        ------
        InvalidDataError
            If they are not finite, or fewer than 30.
        """
        if not isinstance(log_ratios, SmoothedRatios):
            log_ratios = pareto_smooth(np.atleast_2d(np.asarray(log_ratios, dtype=np.float64)))
        names = (
            "pareto_khat", "ess", "kl", "kl_mcse", "symmetrised_kl", "symmetrised_kl_mcse",
            "largest",
        )  # fmt: skip
        found = {name: getattr(log_ratios, name) for name in names}
        return cls(**(found | {"n_draws": log_ratios.log_ratios.size} | others))

    @property
    def _words(self) -> _Words:
        return _WORDS["coreset"]

    @property
    def _title(self) -> str:
        return "Certificate of a coreset"

    # -- numbers -----------------------------------------------------------------------------------

    @property
    def divergence(self) -> float:
        """Symmetrised KL divergence in nats: at the draws, with two errors, and beyond them."""
        at_draws = self.symmetrised_kl + 2 * self.symmetrised_kl_mcse
        return max(at_draws, self.kl + 2 * self.kl_mcse) + self.outside

    @property
    def outside(self) -> float:
        """Divergence beyond the draws, in nats (`Probes`); 0 if unknown."""
        return self.probes.outside

    @property
    def negligible(self) -> bool:
        """Whether the divergence is within the tolerance, and nothing speaks for a heavier tail.

        Pareto k-hat must be below its limit, unless no draw counts half as much again as they do on
        average, and lines show nothing beyond.
        """
        is_small = self.largest <= 0.4 and not self.outside  # nats: exp(0.4) is 1.5
        return self.divergence <= self.tolerance and (is_small or self._has_light_tail)

    @property
    def needs_reweighting(self) -> bool:
        """Whether draws, as they are, differ noticeably from the full posterior's."""
        return not self.negligible

    @property
    def _has_light_tail(self) -> bool:
        return self.pareto_khat < khat_threshold(self.n_draws)

    @property
    def weights_serve(self) -> bool:
        """Whether importance weights turn the draws into those of the full posterior, if enough.

        Of independent draws, most of which count, the tail of the weights says nothing: those of a
        mixture come in groups.
        """
        nearly_all = self._of_independent_draws and self.ess >= NEARLY_ALL * self.n_draws
        return self.negligible or self._has_light_tail or nearly_all

    @property
    def resampling_serves(self) -> bool:
        """Whether draws that were resampled by these weights follow the full posterior."""
        return self.weights_serve and not any(self._unconverged())

    # -- what they mean ----------------------------------------------------------------------------

    @property
    def reliable(self) -> bool:
        """Whether draws can stand for the full posterior, re-weighted if necessary."""
        return self.verdict.level.reliable

    @property
    def verdict(self) -> Verdict:
        """Interpretation of the numbers, with a remedy: the first finding, and remarks."""
        return next(self._findings()).and_text(*self._remarks)

    @property
    def _remarks(self) -> list[str]:
        if self.modes.n_modes < 2 or self.modes.unseen:  # which the verdict itself is about
            return []
        several = f"The posterior has {self.modes.n_modes} modes."
        return [several, BETWEEN_MODES, "check() says which of them draws know."]

    def _findings(self) -> Iterator[Verdict]:
        """All that holds of the draws, in the order in which it counts; the last always does."""
        yield from self._foreign()
        if self.pareto_khat >= KHAT_USELESS and not self.negligible:
            yield Verdict.starting(
                Level.UNUSABLE,
                Reason.COLLAPSED,
                "a few draws carry all the weight, so neither the draws nor the estimates of KL "
                f"can be trusted. {self._words.advice}",
            )
        yield from self._unconverged()
        yield from self.doubts()
        yield self._by_weights

    @property
    def _by_weights(self) -> Verdict:
        """What divergence and weights say of draws that nothing else speaks against."""
        words = self._words
        if self.negligible or (self._has_light_tail and self.ess >= MIN_ESS):
            return self._why_reliable
        if self._has_light_tail:
            return Verdict.starting(
                Level.DOUBTFUL,
                Reason.FEW_DRAWS,
                f"the re-weighted draws have an effective sample size of only {self.ess:.0f}. "
                f"Sample more draws, or {words.better}.",
            )
        return Verdict.starting(
            Level.DOUBTFUL,
            Reason.HEAVY_TAIL,
            "the importance weights have a heavy tail, so re-weighting improves the draws without "
            f"making them right. {words.advice} Or sample more draws.",
        )

    def _foreign(self) -> Iterator[Verdict]:
        """Why the draws are not from the approximate posterior, if they are not."""
        probes, words = self.probes, self._words
        if probes.constant:
            yield Verdict.starting(
                Level.UNUSABLE,
                Reason.CONSTANT,
                f"{probes.constant} is the same in all draws, which none of the {words.posterior} "
                "are. Sample it again.",
            )
        if self._misfit > probes.misfit_limit:
            along = f" along {probes.misfit_where}" if probes.misfit_where else ""
            yield Verdict.starting(
                Level.UNUSABLE,
                Reason.FOREIGN,
                f"these are not draws of the {words.posterior}. By its own density, they are off "
                f"by {probes.misfit:.0f} standard errors{along}. Sample it again, or longer.",
            )

    @property
    def _misfit(self) -> float:
        """How far draws are from the posterior; any show that it is the full one, to rounding."""
        probes = self.probes
        is_same = probes.is_done and max(self.symmetrised_kl, probes.largest**2) <= ROUNDING
        return 0.0 if is_same else probes.misfit

    def _unconverged(self) -> Iterator[Verdict]:
        """Why the draws have not converged, if they have not; independent ones need not."""
        yield from ()

    def doubts(self) -> Iterator[Verdict]:
        """Reasons for doubt that importance weights do not reveal, the most serious first."""
        doubtful = partial(Verdict.starting, Level.DOUBTFUL)
        if self.modes.unseen:
            yield doubtful(
                Reason.UNSEEN_MODE,
                f"the full posterior has {self.modes.n_modes} modes. None of these draws visited "
                f"the one {self.modes.listed(self.modes.unseen)}. {BETWEEN_MODES}",
            )
        if self.probes.unseen:
            yield doubtful(
                Reason.UNSEEN_MODE,
                f"the {self._words.posterior} has several modes, such as one far away along "
                f"{self.probes.unseen_where}, and these draws lack {self.probes.unseen:.1%} of its "
                "mass. NUTS hardly moves from one to another: sample longer, in more chains.",
            )
        if self.caveat:
            yield doubtful(Reason.CAVEAT, self.caveat)
        if self.probes.most > self.tolerance:
            yield doubtful(
                Reason.TAIL,
                f"the full posterior reaches further along {self.probes.where} than the "
                f"{self._words.posterior} and its draws, which no weights can mend. "
                f"{self._words.advice}",
            )

    @property
    def _why_reliable(self) -> Verdict:
        words = self._words
        where = ""
        if not self.modes.n_modes:
            where = " around this mode (others were not looked for)"
        elif not self.modes.is_complete:
            where = " around the modes found (the search for others was not finished)"
        if not self.probes.is_done and self.divergence:
            where += " at the draws (check() looks beyond them)"
        reliable, reweighted = (f"{level}{where}" for level in (Level.RELIABLE, Level.REWEIGHTED))
        if not self.divergence and self.node_error <= ROUNDING:  # to the last digit
            return Verdict(
                Level.RELIABLE,
                Reason.EXACT,
                f"{reliable}: exact. The {words.posterior} is that of all rows, and the draws can "
                "be used as they are.",
            )
        if not self.divergence:
            return Verdict(
                Level.RELIABLE,
                Reason.INTEGRALS,
                f"{reliable}: all units are kept. The draws can be used as they are; the integrals "
                "over the variables of units make a symmetrised KL divergence of about "
                f"{self.node_error:.1g} nats.",
            )
        if self.negligible:
            return Verdict(
                Level.RELIABLE,
                Reason.TOLERANCE,
                f"{reliable}: the draws can be used as they are; the symmetrised KL divergence of "
                f"their posterior from the full one is at most {self.tolerance:g} nats.",
            )
        return Verdict(
            Level.REWEIGHTED,
            Reason.WEIGHTS,
            f"{reweighted}: the {words.posterior} differs noticeably from the full one, but its "
            f"importance weights correct that. {self._worth}{words.correction}",
        )

    @property
    def _worth(self) -> str:
        """Effect of the difference on the variables, if known."""
        return ""

    @property
    def verdict_on_weights(self) -> Verdict:
        """Verdict on draws that were resampled by their importance weights.

        Examples
        --------
        >>> Certificate.of(np.zeros(400)).verdict_on_weights
        Reliable: resampled draws of the full posterior, worth 400 independent ones.
        """
        worth = f"resampled draws of the full posterior, worth {self.ess:,.0f} independent ones."
        heavy = f"the importance weights have a heavy tail (Pareto k-hat {self.pareto_khat:.2f})"
        for found in self._unconverged():
            rest = "the draws that were resampled have not converged. Sample longer."
            return Verdict.starting(Level.UNUSABLE, found.reason, rest)
        if self.weights_serve and self.ess < MIN_ESS and not self.negligible:
            return Verdict.starting(Level.DOUBTFUL, Reason.FEW_DRAWS, f"few {worth}")
        if self.weights_serve:
            return Verdict.starting(Level.RELIABLE, Reason.WEIGHTS, worth)
        if self.pareto_khat >= KHAT_USELESS:
            rest = f"{heavy}, and a few draws carry all of them."
            return Verdict.starting(Level.UNUSABLE, Reason.COLLAPSED, rest)
        return Verdict.starting(Level.DOUBTFUL, Reason.HEAVY_TAIL, f"{heavy}.")

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def facts(self) -> dict[str, str]:
        """What is shown above the verdict: names, and numbers in words."""
        limit = khat_threshold(self.n_draws)
        return {
            f"KL({self._words.name} || full)": f"{self.kl:.2g} ± {self.kl_mcse:.1g} nats",
            "symmetrised KL": f"{self.symmetrised_kl:.2g} ± {self.symmetrised_kl_mcse:.1g} nats "
            f"(tolerance {self.tolerance:g})",
            "beyond the draws": self.probes.in_short,
            "Pareto k-hat": f"{self.pareto_khat:.2f} (reliable below {limit:.2g})",
            "ESS re-weighted": f"{self.ess:,.0f} of {self.n_draws:,} draws",
            "modes": self.modes.words,
        }

    def __repr__(self) -> str:
        return as_text(self._title, self.verdict, self.facts)

    def _repr_html_(self) -> str:
        return as_html(self._title, self.verdict, self.facts)


@dataclass(frozen=True, kw_only=True, repr=False)
class Check(Certificate):
    """Diagnostics of the distance between a coreset's posterior and the full one, from draws.

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
        Divergent transitions of NUTS; None if it was not needed.
    ess_tail : float
        Smallest effective sample size of the 11 and 89 % quantiles.
    n_chains : int
        Each of which must be worth a hundred draws, as PyMC's own warnings have it.
    mean_shift, sd_shift : Shift or None
        By how much the posterior of all rows moves the mean of a free variable at most, and how it
        changes a standard deviation at most, by importance weights.
    n_sampled : int
        Number of draws of all chains.
    copies : Copies
        Share of the draws that equal an earlier one, but not the one before in their chain.
    second_opinion : SecondOpinion or None
        The divergence by PyMC's own log-densities, if computed.
    modes, caveat
        As of a `Certificate`.
    subject : {"coreset", "approximation", "polynomial"}
        The sampled distribution. Independent draws of an approximation, as in
        `check_approximation`, need no convergence, only a sufficient number.
    unreliable : str
        Levels whose own variables could not be drawn reliably, with a remedy.

    Notes
    -----
    The verdict is the first of these that holds:

    1. Draws that are copies, or constant, or that the density of the approximate posterior
       contradicts, are not its own: not to be used.
    2. With Pareto k-hat of 1 or more, and a divergence above the tolerance, a few draws carry all
       the weight, and no number can be trusted: not to be used.
    3. Chains that have not converged, by PyMC's limits, cannot be judged: not to be used.
    4. Draws are doubtful whatever the numbers are if NUTS often diverged, if they did not visit a
       mode that a search found, or too rarely those that lines show, if an error is unknown, if
       lines show a tail beyond them, or if variables that were integrated out could not be drawn
       reliably at some levels.
    5. A symmetrised KL divergence within the tolerance makes the draws reliable *as they are*;
       otherwise Pareto k-hat and the effective sample size decide whether *re-weighting* reaches
       the full posterior.

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
    n_sampled: int = 4_000
    copies: Copies = NO_COPIES
    second_opinion: SecondOpinion | None = None
    subject: Literal["coreset", "approximation", "polynomial"] = "coreset"
    unreliable: str = ""

    _of_independent_draws = False

    @property
    def _words(self) -> _Words:
        return _WORDS[self.subject]

    @property
    def _title(self) -> str:
        return self._words.title

    @property
    def certificate(self) -> Certificate:
        """What the draws say of the posterior that they were drawn from."""
        own = {each.name: getattr(self, each.name) for each in fields(Certificate)}
        return Certificate(**own)

    @property
    def converged(self) -> bool:
        """Whether the chains agree, and hold enough draws for that to mean something."""
        enough = max(ENOUGH_ESS, 100.0 * self.n_chains)
        is_long = min(self.ess_bulk, self.ess_tail) >= enough
        return is_long and not self.rhat > RHAT_CONVERGED

    def _foreign(self) -> Iterator[Verdict]:
        copied, where = self.copies
        if copied > MOST_COPIED:
            of = f" of {where}" if where else ""
            yield Verdict.starting(
                Level.UNUSABLE,
                Reason.COPIED,
                f"{copied:.0%} of the draws{of} are copies of others, so R-hat and effective "
                "sample sizes mean nothing. Pass the draws as the sampler returned them.",
            )
        yield from super()._foreign()

    @property
    def _misfit(self) -> float:
        """That of as many independent draws as these are worth, if that is less than 100."""
        return self.probes.misfit * math.sqrt(min(self.ess_bulk / 100.0, 1.0))

    def _unconverged(self) -> Iterator[Verdict]:
        unusable = partial(Verdict, Level.UNUSABLE)
        if self.converged:
            return
        if self.modes.n_modes > 1:
            yield unusable(
                Reason.SEPARATE_MODES,
                f"{Level.UNUSABLE} as they are: the full posterior has {self.modes.n_modes} modes, "
                f"and chains that stay in one each never agree. {BETWEEN_MODES}",
            )
        elif self.rhat > RHAT_CONVERGED and min(self.ess_bulk, self.ess_tail) < ENOUGH_ESS / 4:
            yield unusable(
                Reason.STUCK,
                f"{Level.UNUSABLE}: the chains are stuck, and do not agree on the "
                f"{self._words.posterior}. Reparametrise the model (for hierarchies, "
                "non-centred), or use another sampler.",
            )
        else:
            rest = "so that its distance from the full one cannot be judged"
            if not self.divergence:  # known without draws
                rest = "which keeps all rows"
            yield unusable(
                Reason.UNCONVERGED,
                f"{Level.UNUSABLE} yet: the draws have not converged to the "
                f"{self._words.posterior}, {rest}. Sample longer.",
            )

    def doubts(self) -> Iterator[Verdict]:
        """See `Certificate`; divergences of NUTS, and levels with unreliable draws."""
        if self._often_diverges:
            yield Verdict.starting(
                Level.DOUBTFUL,
                Reason.DIVERGENCES,
                f"NUTS reported {counted(self.n_divergences or 0, 'divergence')} in "
                f"{self.n_sampled:,} draws, so these lack a part of the {self._words.posterior} "
                "that it does not enter. "
                "Reparametrise the model (for hierarchies, non-centred), or raise target_accept.",
            )
        yield from super().doubts()
        yield from doubts_of_levels(self.unreliable)

    @property
    def _often_diverges(self) -> bool:
        return (self.n_divergences or 0) > MOST_DIVERGENT * self.n_sampled

    @property
    def _remarks(self) -> list[str]:
        # A certificate's remark on modes is for draws to come. Of these, the facts count the modes
        # that they visited, and `doubts` and `_unconverged` tell what is wrong with them.
        found = []
        if np.isnan(self.rhat) and self.subject != "approximation":
            found.append("A single chain cannot show whether it converged: sample two or more.")
        if self.n_divergences and not self._often_diverges:
            found.append(
                f"The sampler reported {counted(self.n_divergences, 'divergence')}: reparametrise "
                "the model, or raise target_accept."
            )
        return found

    @property
    def _worth(self) -> str:
        largest = self.mean_shift
        if largest is None:
            return ""
        return f"They move no mean by more than {abs(largest.size):.2g} sd ({largest.name}). "

    @property
    def facts(self) -> dict[str, str]:
        """What is shown above the verdict: names, and numbers in words."""
        one_chain = np.isnan(self.rhat)
        found = super().facts | {
            "R-hat (largest)": "needs two chains"
            if one_chain
            else f"{self.rhat:.3f} (converged up to {RHAT_CONVERGED})",
            "ESS (smallest)": f"{self.ess_bulk:,.0f} in the bulk, "
            f"{self.ess_tail:,.0f} in the tails",
        }
        if (mean := self.mean_shift) and (sd := self.sd_shift):
            found |= {
                "largest shift": f"mean of {mean.name} by {mean.size:.2g} ± {mean.error:.1g} sd",
                "largest change": f"sd of {sd.name} by {sd.size:.1%} ± {sd.error:.1%}",
            }
        if self.n_divergences is not None:
            found["divergences"] = str(self.n_divergences)
        if self.second_opinion is not None:
            found["PyMC's densities"] = self.second_opinion.in_short
        return found
