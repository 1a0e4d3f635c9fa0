"""What PyMC's own log-densities say of a divergence, beside what we say."""

from dataclasses import dataclass

from pymc_coresets.display.report import as_text

#: Nats by which log-ratios may differ: a divergence at the limit of 0.01 by a tenth at most.
HARMLESS = 0.005


@dataclass(frozen=True, kw_only=True, repr=False)
class SecondOpinion:
    """What PyMC's own log-densities say of an approximate posterior, beside what we say.

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
        """What it says, in a few words."""
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
