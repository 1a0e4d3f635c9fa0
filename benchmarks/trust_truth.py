"""The true quantiles of the posteriors of ``python -m benchmarks.trust``, in a file.

Those of variables that are independent of all others are exact, and so are those of posteriors that
can be summed over a grid.  The rest come from NUTS on all rows, by nutpie, in the coordinates in
which it moves best; where R-hat is not 1.00 there is no truth.  Of each component of each free
variable, or of some components of a variable with hundreds, the file holds the quantiles, their
Monte Carlo standard errors, and the number of independent draws that they are worth.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import nutpie
import xarray as xr

from benchmarks.trust_cases import POSTERIORS, Posterior
from benchmarks.trust_models import Array
from pymc_coresets.compat.arviz_api import array_stats

__all__ = ["LEVELS", "Marginal", "components", "compute_all", "effective_size", "read"]

FILE = Path(__file__).parents[1] / "docs/tables/trust-truth.json"
LEVELS = np.array([0.01, 0.05, 0.5, 0.95, 0.99])
CHAINS, TUNE, SEED = 4, 2_000, 1
RHAT = 1.005  # above it R-hat is not 1.00


@dataclass(frozen=True, kw_only=True)
class Marginal:
    """Quantiles of a component at `LEVELS`; of exact ones the errors are zero and no size is known.

    ``size`` is the smallest effective number of draws below a quantile.
    """

    quantiles: list[float]
    errors: list[float]
    size: float | None = None


class NoTruthError(Exception):
    """NUTS on all rows has not converged."""


def components(posterior: xr.Dataset, name: str) -> Iterator[tuple[str, Array]]:
    """Yield the components of a variable, by name, as draws of shape (n_chains, n_draws)."""
    values = posterior[name].transpose("chain", "draw", ...).to_numpy()
    for place in np.ndindex(values.shape[2:]):
        label = f"{name}[{', '.join(map(str, place))}]" if place else name
        yield label, values[(..., *place)]


def effective_size(values: Array, *, method: str = "bulk") -> float:
    """Return the effective number of draws of shape (n_chains, n_draws), at most that of all."""
    tails = (0.05, 0.95) if method == "tail" else None
    size = array_stats.ess(values, chain_axis=0, draw_axis=1, method=method, prob=tails)
    return min(float(size), float(values.size))


def compute(name: str) -> dict[str, Marginal]:
    """Find the marginal distributions of the components of all free variables."""
    case = POSTERIORS[name]
    found = {
        label: _rounded(np.asarray(quantiles(LEVELS)), np.zeros(len(LEVELS)))
        for label, quantiles in case.exact().items()
    }
    known = {label.partition("[")[0] for label in found}
    known |= {variable for variable, judged in case.levels.items() if not judged}
    rest = [v.name for v in case.model().free_RVs if v.name not in known]
    draws = _by_nuts(case) if rest else xr.Dataset()
    for variable in rest:
        judged = case.levels.get(variable)
        for label, values in components(draws, variable):
            if judged is None or label in {f"{variable}[{level}]" for level in judged}:
                found[label] = _marginal(label, values)
    return found


def _by_nuts(case: Posterior) -> xr.Dataset:
    idata = nutpie.sample(
        nutpie.compile_pymc_model(case.make(True)),  # noqa: FBT003
        draws=case.draws,
        tune=TUNE,
        chains=CHAINS,
        cores=2,
        seed=SEED,
        target_accept=case.target_accept,
        progress_bar=False,
    )
    return idata["posterior"].to_dataset()


def _marginal(label: str, values: Array) -> Marginal:
    rhat = float(array_stats.rhat(values, chain_axis=0, draw_axis=1))
    if not rhat < RHAT:
        msg = f"R-hat of {label} is {rhat:.4f}: more draws are needed"
        raise NoTruthError(msg)
    quantiles = np.quantile(values, LEVELS)
    sizes = [effective_size((values < q).astype(float), method="mean") for q in quantiles]
    spread = np.sqrt(LEVELS * (1 - LEVELS) / sizes)  # of the level of a quantile
    around = np.quantile(values, np.clip([LEVELS - spread, LEVELS + spread], 0, 1))
    return _rounded(quantiles, np.diff(around, axis=0)[0] / 2, size=min(sizes))


def _rounded(quantiles: Array, errors: Array, size: float | None = None) -> Marginal:
    return Marginal(
        quantiles=[float(f"{q:.9g}") for q in quantiles],
        errors=[float(f"{error:.2g}") for error in errors],
        size=None if size is None else round(size),
    )


# -- the file --------------------------------------------------------------------------------------


def read() -> dict[str, dict[str, Marginal]]:
    """Return what is known, by posterior and by component."""
    if not FILE.exists():
        return {}
    kept = json.loads(FILE.read_text())
    return {
        name: {label: Marginal(**marginal) for label, marginal in marginals.items()}
        for name, marginals in kept.items()
    }


def write(truths: dict[str, dict[str, Marginal]]) -> None:
    """Write the file, with one line for each component."""
    parts = []
    for name in (name for name in POSTERIORS if name in truths):
        lines = [
            f"  {json.dumps(label)}: {json.dumps(asdict(marginal))}"
            for label, marginal in truths[name].items()
        ]
        parts.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def compute_all(names: Iterable[str]) -> None:
    """Compute the truth about some posteriors, and write each into the file."""
    for name in names:
        found = compute(name)
        write(read() | {name: found})
        least = min((one.size for one in found.values() if one.size is not None), default=np.inf)
        print(f"{name}: at least {least:,.0f} effective draws", flush=True)
