"""The result of leave-one-out cross-validation."""

from dataclasses import dataclass
from typing import ClassVar

from pymc_coresets.compat.arviz_api import ELPDDataLOOSubsample


@dataclass(kw_only=True, repr=False, eq=False)
class ElpdOfAllRows(ELPDDataLOOSubsample):
    """Result of `Coreset.loo`: `arviz.ELPDData` with further figures.

    Parameters
    ----------
    mcse : float
        Monte Carlo standard error of `elpd`, in nats: what other draws would change.  What other
        rows in the sample would change is `subsampling_se`; what other data would, `se`.
        Infinite if Pareto k-hat of a row is 1 or more.
    posterior_khat : float
        Pareto k-hat of the importance ratios of the full posterior over the one that was sampled.
    units : str, default ""
        Which units were left out, if these are not rows; `arviz.compare` compares equal ones.

    Notes
    -----
    Its arrays `elpd_i` and `elpd_loo_approx` have one entry per row: what the row adds to the sum,
    which is its elpd times its case weight.  `elpd_i` holds the surrogate of rows that were not
    left out.  These are the random sample `loo_subsample_observations` and the rows of large
    influence; of the latter, `elpd_loo_approx` is exact, too.  `pareto_k` has one entry for each
    row that was left out, with the coordinates ``position`` and ``where``.  Where rows were removed
    from the posterior itself, it is that of the new weights; `influence_pareto_k` has the former.
    """

    mcse: float
    posterior_khat: float
    units: str = ""

    _display_kind: ClassVar[str] = "loo"

    @property
    def kind(self) -> str:
        """What was left out: ArviZ refuses to compare results of different kinds."""
        return f"loo of {self.units}" if self.units else "loo"

    def __str__(self) -> str:
        note = f"Monte Carlo standard error of elpd_loo: {self.mcse:.2g}"
        table: str = super().__str__()  # type: ignore[no-untyped-call]
        return f"{table}\n{note}\n"
