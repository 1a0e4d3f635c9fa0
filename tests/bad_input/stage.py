"""What the calls work on: tiny models, a coreset and a summary, draws; and what must not change."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr

from pymc_coresets import (
    Coreset,
    CoresetStream,
    PolynomialSummary,
    RowSource,
    build_coreset,
    build_pass_glm,
    open_rows,
)

# Where there is no BLAS for C code (which we do not use), looking for one warns.
pytensor.config.blas__ldflags = ""

N_OBS = 20
X = np.random.default_rng(1).normal(size=N_OBS)
Y = X + np.random.default_rng(2).normal(size=N_OBS)


@cache
def model() -> pm.Model:
    """A regression with one coefficient, of 20 rows in a data container."""
    with pm.Model(coords={"row": range(N_OBS)}) as made:
        x = pm.Data("x", X, dims="row")
        pm.Normal("y", pm.Normal("a", initval=0.5) * x, 1.0, observed=Y, dims="row")
    return made


@cache
def rows() -> RowSource:
    """The rows of the model, as if they lay elsewhere."""
    return open_rows({"x": X, "y": Y})


@cache
def prototypes() -> pm.Model:
    """The same regression, which holds a few of the rows."""
    with pm.Model() as made:
        x, y = (pm.Data(name, values) for name, values in rows().head(7).items())
        pm.Normal("likelihood", pm.Normal("a", initval=0.5) * x, 1.0, observed=y)
    return made


@cache
def coreset() -> Coreset:
    return build_coreset(model(), size=5, method="uniform", random_seed=1, progressbar=False)


@cache
def coreset_of_rows() -> Coreset:
    """One that can be merged: the model holds prototypes of its rows."""
    return build_coreset(
        prototypes(), rows=rows(), size=5, method="uniform", random_seed=1, progressbar=False
    )


@cache
def stream() -> CoresetStream:
    """A stream that has seen its pilot."""
    return CoresetStream(prototypes(), pilot={"x": X, "y": Y}, random_seed=1)


@cache
def summary() -> PolynomialSummary:
    return build_pass_glm(model(), random_seed=1, progressbar=False)


@cache
def folder() -> Path:
    """A folder with the coreset's file, and nothing else."""
    path = Path(tempfile.mkdtemp(prefix="bad_input_"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    coreset().to_netcdf(path / "coreset.nc")
    return path


def posterior(n_chains: int = 2, n_draws: int = 30) -> xr.Dataset:
    """Draws close to the posterior of the model."""
    draws = np.random.default_rng(3).normal(1.0, 0.2, size=(n_chains, n_draws))
    return xr.Dataset({"a": (("chain", "draw"), draws)})


def idata() -> xr.DataTree:
    return xr.DataTree.from_dict({"posterior": posterior()})


def snapshot(of: pm.Model) -> tuple[Any, ...]:
    """All of a user's model that the package could have changed."""
    return (
        pytensor.dprint(list(of.named_vars.values()), file="str"),
        [str(v) for v in (*of.free_RVs, *of.observed_RVs, *of.potentials, *of.deterministics)],
        {name: str(dims) for name, dims in of.named_vars_to_dims.items()},
        {name: str(values) for name, values in of.coords.items()},
        {rv.name: str(value) for rv, value in of.rvs_to_initial_values.items()},
        {v.name: np.asarray(v.get_value()).tobytes() for v in of.data_vars},
    )


def files() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder().rglob("*") if path.is_file()}
