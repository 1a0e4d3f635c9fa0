"""Draws of a posterior that its construction has certified at others: whether they are its own."""

from dataclasses import fields

import numpy as np
import xarray as xr

from pymc_coresets.deadline import doing
from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.diagnostics.judging import EVEN, Certificate, Check
from pymc_coresets.diagnostics.posterior_draws import Chains, evenly, require_own
from pymc_coresets.predictive.stand_ins import HasStandIn, StandIn
from pymc_coresets.reading.draws import Draws
from pymc_coresets.sampling.stand_in import completed
from pymc_coresets.sampling.steps.starts import around_draws

_SPREAD, _FARTHEST = 50, 50  #: Draws at which all rows are evaluated.


def check_of_certified(result: HasStandIn, idata: xr.DataTree) -> Check | None:
    """Check draws by the certificate of the posterior that they are said to be from.

    A construction measures the divergence at held-out draws, and along lines beyond them.  Where it
    is so small that no second measurement could exceed the tolerance, that of `check` would only
    repeat it.  What remains to be shown is that these are draws of the same posterior.  So all rows
    are evaluated at a hundred of them: at fifty evenly spread ones, and at the fifty that are
    farthest out.  Chains may have found a region which the certified draws have not; whatever the
    share of their draws there, some of the hundred are among them.

    Parameters
    ----------
    result : Coreset
    idata : xarray.DataTree
        As of `check`.

    Returns
    -------
    Check, or None
        With the numbers of the certificate.  None if a `check` is needed: the certificate is
        not so clear, or these draws do not agree with it.

    Raises
    ------
    InvalidDataError
        As `check`.
    """
    own = result.stand_in
    known = own.certificate
    if known is None or not known.is_clear or own.has_all_rows():
        return None
    idata = require_own(idata, "check()", own.groups)
    chains = Chains(idata, own.free)
    with doing("checking draws"):
        if not _agree(own, Draws.of(chains.posterior, own.free), known):
            return None
        of_posterior = {each.name: getattr(known, each.name) for each in fields(Certificate)}
        return completed(result, idata, chains, Check(**of_posterior, **chains.agreement))


def _agree(own: StandIn, draws: Draws, known: Certificate) -> bool:
    """Whether log-ratios at some draws are as small as the certificate says."""
    with np.errstate(all="ignore"):
        points = own.space.free(draws)
    numbers = _to_evaluate(points) if np.isfinite(points).all() else None
    if numbers is None:
        return False
    full, approximate = own.log_densities_at(draws.take(numbers))
    with np.errstate(invalid="ignore"):
        ratios = full - approximate
    spread = ratios[:_SPREAD]
    if not np.isfinite(ratios).all() or np.abs(ratios - spread.mean()).max() > EVEN:
        return False
    return Certificate.of(spread).divergence <= known.tolerance


def _to_evaluate(points: Floats) -> np.ndarray | None:
    """Return the numbers of evenly spread draws, then of the farthest; None if these are unknown.

    By their distance from the mean in whitened coordinates.
    """
    moving = np.ptp(points, axis=0) > 0
    if len(points) < _SPREAD + _FARTHEST or not moving.any():
        return None
    around = around_draws(points[:, moving])
    if around is None:
        return None
    distances = np.square(around.whiten(points[:, moving])).sum(axis=1)
    farthest = np.argpartition(distances, -_FARTHEST)[-_FARTHEST:]
    return np.concatenate([evenly(np.arange(len(points)), _SPREAD), farthest])
