"""The result: a few weighted rows, the model in which they stand for all, and its checks."""

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypedDict

import numpy as np
import pymc as pm
import xarray as xr
from pymc.model.core import modelcontext

from pymc_coresets.diagnostics.datatree import check_draws, ratios_by_chain, reweight_draws
from pymc_coresets.diagnostics.judging import Check
from pymc_coresets.display import facts_html, facts_text
from pymc_coresets.exceptions import CoresetError, InvalidDataError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.rewrite import coreset_model, row_values
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.nuts import NutsSampler

__all__ = ["Coreset"]

GROUP = "coreset"


class Settings(TypedDict):
    """How the observations were found in the model: arguments of `find_observations`."""

    observed: str | list[str] | None
    dim: str | None
    allow_local: bool


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Coreset:
    """Weighted rows of a model's data whose posterior is close to that of all rows.

    Made by `build_coreset`.

    Parameters
    ----------
    indices : ndarray of int64, of shape (size,)
        Positions along the observation axis of the user's own data, sorted and unique.
    weights : ndarray of float64, of shape (size,)
        Positive; ``weights[i]`` multiplies the log-likelihood of row ``indices[i]``.
    n_observations : int
        Number of rows that the coreset stands for.
    n_distinct : int
        How many of them are distinct, where identical rows were merged (``collapse=True``).
    method, weighting : str
        What chose the weights, and the weighting distribution that it used.
    status : str
        Why the method stopped, in a sentence.
    objective : float
        Estimate of the symmetrised KL divergence from the full posterior in nats, by the method's
        own draws, held out where there are such; nan for methods that measure none.
    random_seed : int or None
        The seed that it was built from, where that was a number.
    history : xarray.Dataset
        Per step: ``size``, ``objective`` on the draws that chose the weights and
        ``heldout_objective`` on others (nats), and ``seconds`` since the method's start; the
        attributes are the seconds of the construction's parts.
    settings : dict
        How the observations were found in the model: ``observed``, ``dim``, ``allow_local``.
    loglikelihood : LogLikelihood or None
        The potentials of the full model; ``None`` where the coreset was read from a file without
        its model.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
    >>> coreset.size, float(coreset.weights.sum())
    (5, 500.0)
    """

    indices: np.ndarray
    weights: np.ndarray
    n_observations: int
    n_distinct: int
    method: str
    weighting: str
    status: str
    objective: float
    random_seed: int | None
    history: xr.Dataset
    settings: Settings
    loglikelihood: LogLikelihood | None

    @property
    def size(self) -> int:
        """Number of weighted rows."""
        return len(self.indices)

    @property
    def full_model(self) -> pm.Model:
        """The user's model."""
        return self._whole().observations.model

    @cached_property
    def model(self) -> pm.Model:
        """A plain PyMC model with a weighted `Potential` in place of the likelihood of all rows."""
        return coreset_model(self._whole().observations, self._rows(), self.weights)

    # -- inference -----------------------------------------------------------------------------

    def sample(
        self,
        *,
        nuts_sampler: NutsSampler = "pymc",
        **kwargs: Any,  # noqa: ANN401
    ) -> xr.DataTree:
        """Sample the coreset's posterior with `pm.sample`.

        Parameters
        ----------
        nuts_sampler : {"pymc", "nutpie", "numpyro", "blackjax"}, default "pymc"
            PyMC's own NUTS compiles in a second.  The others take ten or more, which a density
            as cheap as a coreset's repays only where trajectories are long.  PyMC runs chains in
            processes of their own: where Python spawns these (on Windows, and from 3.14 on) a
            script needs ``if __name__ == "__main__":``, or ``cores=1``.
        **kwargs
            Passed on to `pm.sample`.

        Returns
        -------
        xarray.DataTree
            As `pm.sample` gives it, with the coreset in the group ``coreset``.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import build_coreset
        >>> x = np.random.default_rng(1).normal(size=500)
        >>> with pm.Model():
        ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
        ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
        >>> idata = coreset.sample(draws=50, tune=50, chains=2, random_seed=1, progressbar=False)
        >>> idata["coreset"].sizes["row"]
        5
        """
        idata: xr.DataTree = pm.sample(model=self.model, nuts_sampler=nuts_sampler, **kwargs)
        idata[GROUP] = self._dataset()
        return idata

    def log_ratios(self, idata: xr.DataTree) -> np.ndarray:
        """Log of the full over the coreset posterior density at draws, in nats, up to a constant.

        Costs one pass over the data for all draws; memory O(n_draws).

        Parameters
        ----------
        idata : xarray.DataTree
            Draws with a group ``posterior``.

        Returns
        -------
        ndarray of shape (n_chains, n_draws)
            ``sum_n (u_n - w_n) f_n(theta)``.

        Raises
        ------
        InvalidDataError
            If the draws lack a variable, or are impossible under the full data.
        """
        loglik = self._whole()
        full = loglik.look(idata).total
        coreset = self.weights @ loglik.matrix(idata, self._rows())
        return ratios_by_chain(
            idata,
            full - coreset,
            impossible="the KL divergence is infinite, and the coreset is not to be used. The "
            "likelihood's support depends on its parameters; a few rows cannot stand for that.",
        )

    def check(self, idata: xr.DataTree) -> Check:
        """Say how far the coreset's posterior can be trusted, without a run of the full one.

        Costs one pass over the data for all draws.

        Parameters
        ----------
        idata : xarray.DataTree
            Draws of the coreset model, from `sample` or `pm.sample`.

        Returns
        -------
        Check
            Pareto k-hat, effective sample size, KL divergence, and a verdict in words.
        """
        return check_draws(idata, self.log_ratios(idata))

    def reweight(
        self,
        idata: xr.DataTree,
        *,
        n_draws: int | None = None,
        random_seed: int | np.random.Generator | None = None,
    ) -> xr.DataTree:
        """Correct draws of the coreset posterior towards the full one, by importance resampling.

        Costs one pass over the data for all draws.  Warns where the weights are not to be relied
        on (Pareto k-hat).

        Parameters
        ----------
        idata : xarray.DataTree
            Draws of the coreset model.
        n_draws : int, optional
            Draws a chain; as many as there are by default.
        random_seed : int or Generator, optional

        Returns
        -------
        xarray.DataTree
        """
        rng = np.random.default_rng(random_seed)
        return reweight_draws(idata, self.log_ratios(idata), rng=rng, draws=n_draws)

    # -- storage -------------------------------------------------------------------------------

    def to_datatree(self) -> xr.DataTree:
        """Give indices, weights, history and settings as a DataTree, without the model."""
        tree = xr.DataTree.from_dict({GROUP: self._dataset(), "history": self.history})
        tree.attrs["n_observations"] = self.n_observations
        return tree

    def to_netcdf(self, path: str | Path) -> None:
        """Write `to_datatree` to a NetCDF file."""
        self.to_datatree().to_netcdf(path, engine="h5netcdf")

    @classmethod
    def from_netcdf(cls, path: str | Path, model: pm.Model | None = None) -> Self:
        """Read a coreset; with the model given again it is whole.

        Parameters
        ----------
        path : str or Path
            A file written by `to_netcdf`.
        model : pm.Model, optional
            The full model, or that of the context.  Without any, the coreset has its indices,
            weights and history, but can neither be sampled nor checked.

        Returns
        -------
        Coreset

        Raises
        ------
        InvalidDataError
            If the model is not the one that the coreset was built for.
        """
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            dataset = tree[GROUP].to_dataset().load()
            history = tree["history"].to_dataset().load()
        attrs = dataset.attrs
        settings: Settings = json.loads(attrs["settings"])
        model = _model_of_context() if model is None else model
        loglik = None if model is None else LogLikelihood(find_observations(model, **settings))
        if loglik is not None and loglik.n_rows != attrs["n_observations"]:
            raise InvalidDataError(
                f"The coreset was built for {attrs['n_observations']} observations, but the model "
                f"has {loglik.n_rows}: give the model that it was built from."
            )
        coreset = cls(
            indices=dataset["indices"].to_numpy(),
            weights=dataset["weights"].to_numpy(),
            n_observations=int(attrs["n_observations"]),
            n_distinct=int(attrs["n_distinct"]),
            method=attrs["method"],
            weighting=attrs["weighting"],
            status=attrs["status"],
            objective=float(attrs["objective"]),
            random_seed=None if attrs["random_seed"] == "" else int(attrs["random_seed"]),
            history=history,
            settings=settings,
            loglikelihood=loglik,
        )
        if loglik is not None and coreset._fingerprint() != attrs["fingerprint"]:
            raise InvalidDataError(
                "The model has other free variables, or other data in the coreset's rows, than "
                "the one that the coreset was built from: give that one."
            )
        return coreset

    def _fingerprint(self) -> str:
        """Tell models apart by their free variables and their data in the coreset's rows."""
        if self.loglikelihood is None:
            return ""
        observations = self.loglikelihood.observations
        digest = sha256(repr(sorted(observations.shapes.items())).encode())
        for name, values in row_values(observations, self._rows(), self.weights).items():
            digest.update(name.encode() + values.tobytes())
        return digest.hexdigest()

    def _dataset(self) -> xr.Dataset:
        return xr.Dataset(
            {"indices": ("row", self.indices), "weights": ("row", self.weights)},
            attrs={
                "n_observations": self.n_observations,
                "n_distinct": self.n_distinct,
                "method": self.method,
                "weighting": self.weighting,
                "status": self.status,
                "objective": self.objective,
                "random_seed": "" if self.random_seed is None else str(self.random_seed),
                "settings": json.dumps(self.settings),
                "fingerprint": self._fingerprint(),
            },
        )

    def _whole(self) -> LogLikelihood:
        if self.loglikelihood is None:
            raise CoresetError(
                "This coreset was read without its model: read it again with "
                "Coreset.from_netcdf(path, model=...)."
            )
        return self.loglikelihood

    def _rows(self) -> Rows:
        """Return the chosen rows with their data."""
        return self._whole().source.at(self.indices)

    # -- display -------------------------------------------------------------------------------

    def _facts(self) -> dict[str, str]:
        rows = f"{self.size:,} of {self.n_observations:,}"
        if self.n_distinct < self.n_observations:
            rows += f" ({self.n_distinct:,} distinct)"
        facts = {"rows": rows, "method": self.method, "weighting": self.weighting}
        if np.isfinite(self.objective):
            facts["divergence"] = f"about {self.objective:.3g} nats"
        return facts | {"status": self.status}

    def __repr__(self) -> str:
        return facts_text("Coreset", self._facts())

    def _repr_html_(self) -> str:
        return facts_html("Coreset", self._facts())


def _model_of_context() -> pm.Model | None:
    try:
        return modelcontext(None)
    except TypeError:
        return None
