"""The verdict on a posterior from polynomial statistics, in words."""

import math
from dataclasses import dataclass

from pymc_coresets.diagnostics.importance import KHAT_USELESS, khat_threshold
from pymc_coresets.diagnostics.judging import KL_NEGLIGIBLE, Check
from pymc_coresets.display.facts import facts_text
from pymc_coresets.display.page import facts_html

OUTSIDE_NOTICEABLE = 0.03
"""Share of predictors outside the radius above which the verdict gives the radius as the reason."""


_TITLE = "Check of a polynomial posterior"


@dataclass(frozen=True, kw_only=True)
class PolynomialCheck:
    """What draws of a polynomial approximation say about its distance from the full posterior.

    Parameters
    ----------
    degree : int
        Degree of the polynomials.
    radius : float
        They approximate the log-likelihood where ``|eta_n| <= radius``.
    outside : float
        Share of the predictors eta_n, over all rows and draws, that lie outside the radius.
    reach : float
        The 99.9 % quantile of ``|eta_n|``: a radius that would hold nearly all.
    max_error : float
        Largest difference between the log-likelihood of a row and its polynomial at the draws, in
        nats.
    bounded : bool
        Whether the polynomial log-likelihood is bounded above: for degree 2, whether its curvature
        is negative semidefinite.
    draws : Check
        Importance ratios of the full posterior over the approximate one, and convergence.

    Notes
    -----
    The verdict follows from the importance ratios.  The share outside the radius, which is the
    warning sign of the paper (20 % where PASS-LR2 failed), says why ratios are bad, and what to do.

    Examples
    --------
    >>> draws = Check(
    ...     pareto_khat=1.4, ess=2.0, n_draws=1000, kl=40.0, kl_mcse=9.0, symmetrised_kl=90.0,
    ...     symmetrised_kl_mcse=10.0, rhat=1.001, ess_bulk=800.0, n_divergences=0,
    ... )
    >>> check = PolynomialCheck(
    ...     degree=2, radius=4.0, outside=0.3, reach=9.0, max_error=12.0, bounded=True, draws=draws
    ... )
    >>> check.reliable
    False
    """

    degree: int
    radius: float
    outside: float
    reach: float
    max_error: float
    bounded: bool
    draws: Check

    @property
    def reliable(self) -> bool:
        """Whether the draws serve for the full posterior, re-weighted where they need it."""
        return self.bounded and self.draws.reliable

    @property
    def needs_reweighting(self) -> bool:
        """Whether the draws, as they are, differ noticeably from the full posterior's."""
        return self.draws.needs_reweighting

    @property
    def verdict(self) -> str:
        """What to make of it and what to do, in words."""
        sentences = [self._judgement()]
        if not self.bounded:
            sentences.append("The polynomial is unbounded above: its posterior is improper.")
        if self.draws.converged and not self.draws.reliable:
            sentences.append(self._reason())
        if math.isnan(self.draws.rhat):
            sentences.append("A single chain cannot show whether it converged: sample two or more.")
        if self.draws.n_divergences:
            sentences.append(
                f"The sampler reported {self.draws.n_divergences} divergences: see whether the "
                "model should be reparametrised or target_accept raised."
            )
        return " ".join(sentences)

    def _judgement(self) -> str:
        draws = self.draws
        if draws.pareto_khat >= KHAT_USELESS and not draws.negligible:
            return (
                "Not to be used: the approximate posterior misses the full one, and re-weighting "
                "does not correct that."
            )
        if not draws.converged:
            return (
                "Not to be used yet: the draws have not converged to the approximate posterior, so "
                "its distance from the full one cannot be judged. Sample longer."
            )
        if draws.negligible:
            return (
                "Reliable: the draws serve as they are, they differ from the full posterior's by "
                f"less than {KL_NEGLIGIBLE} nats."
            )
        if draws.reliable:
            return (
                "Reliable once re-weighted: the approximate posterior differs noticeably from the "
                "full one, but its importance weights correct that. Use reweight()."
            )
        return (
            "Doubtful: the approximate posterior differs noticeably from the full one, and its "
            "importance weights are not to be relied on."
        )

    def _reason(self) -> str:
        if self.outside < OUTSIDE_NOTICEABLE:
            return (
                f"Few predictors leave the radius {self.radius:.3g}: polynomials of degree "
                f"{self.degree} are not close enough to the log-likelihood within it. Use a higher "
                "degree, radius='auto', or build_coreset, which needs no polynomial."
            )
        return (
            f"{self.outside:.0%} of the predictors lie outside the radius {self.radius:.3g}, where "
            "the polynomials approximate nothing. Use radius='auto', a higher degree with a radius "
            f"that covers nearly all of them ({self.reach:.2g}), or build_coreset, which needs no "
            "polynomial."
        )

    def _rows(self) -> dict[str, str]:
        draws = self.draws
        limit = khat_threshold(draws.n_draws)
        return {
            "predictors outside": f"{self.outside:.2%} beyond radius {self.radius:.3g}",
            "99.9 % of |eta| below": f"{self.reach:.3g}",
            "largest error of a row": f"{self.max_error:.2g} nats (degree {self.degree})",
            "bounded above": "yes" if self.bounded else "no",
            "KL(approximate || full)": f"{draws.kl:.2g} ± {draws.kl_mcse:.1g} nats",
            "Pareto k-hat": f"{draws.pareto_khat:.2f} (reliable below {limit:.2g})",
            "ESS re-weighted": f"{draws.ess:.0f} of {draws.n_draws} draws",
        }

    def __repr__(self) -> str:
        return facts_text(_TITLE, self._rows(), self.verdict)

    def _repr_html_(self) -> str:
        return facts_html(_TITLE, self._rows(), verdict=self.verdict, plain=repr(self))
