"""The verdict on a posterior from polynomial statistics, in words."""

from dataclasses import dataclass

from pymc_coresets.diagnostics.judging import Check
from pymc_coresets.display import as_text

OUTSIDE_NOTICEABLE = 0.03
"""Share of predictors outside the radius above which the verdict gives the radius as the reason."""


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
        Importance ratios of the full posterior over the approximate one, and convergence; of the
        subject "polynomial".

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
        sentences = [self.draws.verdict]
        if not self.bounded:
            sentences.append("The polynomial is unbounded above: its posterior is improper.")
        if self.draws.converged and not self.draws.reliable:
            sentences.append(self._reason())
        return " ".join(sentences)

    def _reason(self) -> str:
        if self.outside < OUTSIDE_NOTICEABLE:
            return (
                f"Few predictors leave the radius {self.radius:.3g}: polynomials of degree "
                f"{self.degree} are not close enough to the log-likelihood within it. Use a higher "
                "degree, or radius='auto'."
            )
        return (
            f"{self.outside:.0%} of the predictors lie outside the radius {self.radius:.3g}, where "
            "the polynomials approximate nothing. Use radius='auto', or a higher degree with a "
            f"radius that covers nearly all of them ({self.reach:.2g})."
        )

    def __repr__(self) -> str:
        facts = {
            "predictors outside": f"{self.outside:.2%} beyond radius {self.radius:.3g}",
            "99.9 % of |eta| below": f"{self.reach:.3g}",
            "largest error of a row": f"{self.max_error:.2g} nats (degree {self.degree})",
            "bounded above": "yes" if self.bounded else "no",
            **self.draws.facts,
        }
        return as_text("Check of a polynomial posterior", facts, self.verdict)
