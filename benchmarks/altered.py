"""Does `check` tell altered draws?  ``python -m benchmarks.altered [--seeds 20]``.

Coresets of logistic regressions of 4, 20 and 120 dimensions, and 4,000 draws of each by default
settings.  Those of the last coefficient, or of all variables, are altered on the unconstrained
scale.  The table shows the share of seeds for which `check` says that they are not draws of the
coreset, or copies; in the first line, where nothing is altered, these are false alarms.
"""

import warnings
from collections.abc import Callable, Mapping

import numpy as np
import pymc as pm
import xarray as xr
from scipy.special import expit

from benchmarks.tables import markdown, parser_of, save
from pymc_coresets import Coreset, Reason, build_coreset

DIMENSIONS = (4, 20, 120)
N_ROWS = 20_000

type Array = np.ndarray
#: Of draws (n_chains, n_draws, n_dims), their means and standard deviations, and random numbers.
type Alteration = Callable[[Array, Array, Array, np.random.Generator], Array]


def of_last(change: Callable[[Array, np.random.Generator], Array]) -> Alteration:
    """Alter the last dimension, in standard deviations from its mean."""

    def altered(x: Array, mean: Array, sd: Array, rng: np.random.Generator) -> Array:
        x = x.copy()
        x[..., -1] = mean[-1] + sd[-1] * change((x[..., -1] - mean[-1]) / sd[-1], rng)
        return x

    return altered


def shuffled(t: Array, rng: np.random.Generator) -> Array:
    return rng.permutation(t.ravel()).reshape(t.shape)


ALTERATIONS: Mapping[str, Alteration] = {
    "none": lambda x, *_: x,
    "one shifted by 0.1 sd": of_last(lambda t, _: t + 0.1),
    "one shifted by 0.2 sd": of_last(lambda t, _: t + 0.2),
    "one shrunk to 0.95": of_last(lambda t, _: 0.95 * t),
    "one shrunk to 0.9": of_last(lambda t, _: 0.9 * t),
    "one stretched to 1.1": of_last(lambda t, _: 1.1 * t),
    "one cut off at 2 sd": of_last(lambda t, _: t.clip(-2.0, 2.0)),
    "one cut off at 1.6 sd": of_last(lambda t, _: t.clip(-1.6, 1.6)),
    "2 % of one at +3 sd": of_last(lambda t, rng: np.where(rng.random(t.shape) < 0.02, 3.0, t)),
    "5 % of one at +3 sd": of_last(lambda t, rng: np.where(rng.random(t.shape) < 0.05, 3.0, t)),
    "one permuted": of_last(shuffled),
    "all shrunk to 0.95": lambda x, mean, *_: mean + 0.95 * (x - mean),
    "all shifted by 0.1 sd": lambda x, _, sd, __: x + 0.1 * sd,
    "one chain, four times": lambda x, *_: x[[0, 0, 0, 0]],
}


def coreset_of(n_dims: int) -> Coreset:
    """Build the coreset of a regression whose columns have a correlation of a half."""
    rng = np.random.default_rng(n_dims)
    x = rng.normal(size=(N_ROWS, n_dims - 1)) + rng.normal(size=(N_ROWS, 1))
    slopes = rng.normal(size=n_dims - 1) / n_dims
    y = rng.binomial(1, expit(x @ slopes - 0.5))
    with pm.Model() as model:
        eta = pm.Normal("intercept", 0, 2) + x @ pm.Normal("slopes", 0, 1, shape=n_dims - 1)
        pm.Bernoulli("y", logit_p=eta, observed=y)
    return build_coreset(model, random_seed=1, progressbar=False)


def told(coreset: Coreset, seed: int) -> list[bool]:
    """Return whether each alteration of draws of this seed is told."""
    idata = coreset.sample(random_seed=seed, progressbar=False)
    posterior, rng = idata["posterior"].to_dataset(), np.random.default_rng(seed)
    x = np.concatenate([posterior["intercept"].values[..., None], posterior["slopes"]], axis=2)
    mean, sd = x.mean(axis=(0, 1)), x.std(axis=(0, 1))
    found = []
    for alter in ALTERATIONS.values():
        other = alter(x, mean, sd, rng)
        changed = posterior.assign(
            intercept=(posterior["intercept"].dims, other[..., 0]),
            slopes=(posterior["slopes"].dims, other[..., 1:]),
        )
        verdict = coreset.check(xr.DataTree.from_dict({"posterior": changed})).verdict
        found.append(verdict.reason in {Reason.FOREIGN, Reason.COPIED})
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    shares = []
    for n_dims in options.dimensions:
        coreset = coreset_of(n_dims)
        shares.append(np.mean([told(coreset, seed) for seed in range(options.seeds)], axis=0))
    header = ("alteration", *(f"D = {n}" for n in options.dimensions))
    lines = [
        (name, *(f"{share:.0%}" for share in line))
        for name, *line in zip(ALTERATIONS, *shares, strict=True)
    ]
    table = markdown(header, lines)
    print(table)
    save(options.tables, "altered", table)


if __name__ == "__main__":
    main()
