"""The data of the papers' experiments: read, or simulated in the same shape."""

import os
from pathlib import Path

import numpy as np
from scipy.linalg import solve_triangular

from benchmarks.closed_forms import Array, LinearRegression, Location
from benchmarks.regressions import Regression, logistic, poisson

LOGISTIC = ("synth_lr", "ds1", "phishing")
POISSON = ("synth_poiss", "biketrips", "airportdelays")
DATA_SETS = LOGISTIC + POISSON

SCALES = (0.2, 0.4, 0.8, 1.2, 1.6, 2.0)  # degrees
BASES_PER_SCALE = 50
WIDEST = 100.0


def data_folder() -> Path | None:
    """Return the folder of the six data sets, or None where it is absent.

    It is named by the environment variable PYMC_CORESETS_DATA, and is ../shared/data by default.
    """
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("PYMC_CORESETS_DATA", beside))
    return folder if folder.is_dir() else None


def needed_folder() -> Path:
    folder = data_folder()
    if folder is None:
        raise SystemExit("No data: set PYMC_CORESETS_DATA to the folder with synth_lr.npz etc.")
    return folder


def load(name: str, folder: Path) -> Regression:
    """Read one data set and whiten its columns, except the last one, the intercept."""
    with np.load(folder / f"{name}.npz") as file:
        features, y = file["X"].astype(np.float64), file["y"].astype(np.float64)
    centred = features[:, :-1] - features[:, :-1].mean(axis=0)
    root = np.linalg.cholesky(np.atleast_2d(np.cov(centred, rowvar=False)))
    features[:, :-1] = solve_triangular(root, centred.T, lower=True).T
    return logistic(features, y) if name in LOGISTIC else poisson(features, y)


def gaussian_mean(rng: np.random.Generator) -> Location:
    """Simulate the data of Campbell and Beronov (2019), Section 5.1: d = 200, N = 1000."""
    return Location(rng.normal(size=(1000, 200)))


def radial_basis(rng: np.random.Generator) -> LinearRegression:
    """Simulate Section 5.2: 301 radial basis functions of the place, and made-up house prices."""
    places, log_prices = house_prices(10_000, rng=rng)
    scales = np.repeat([*SCALES, WIDEST], [*[BASES_PER_SCALE] * len(SCALES), 1])
    centres = places[rng.choice(len(places), len(scales))]
    centres[-1] = places.mean(axis=0)
    squares = np.square(places[:, None, :] - centres).sum(axis=2)
    return LinearRegression(
        np.exp(-squares / (2 * scales**2)),
        log_prices,
        prior_mean=float(log_prices.mean()),
        prior_variance=float(np.square(log_prices).mean()),
        noise_variance=float(log_prices.var()),
    )


def house_prices(n_obs: int, *, rng: np.random.Generator) -> tuple[Array, Array]:
    """Simulate places (latitude, longitude) and log prices that resemble the UK's house sales.

    Places cluster in 80 towns of very different size between 50 and 56 degrees north and 5 west
    and 1 east. Log prices rise towards one city in the south-east, differ by town, and have a
    standard deviation of about 0.6.
    """
    n_towns, city = 80, np.array([51.5, -0.1])
    towns = np.vstack([city, rng.uniform((50.3, -5.0), (56.0, 1.0), size=(n_towns - 1, 2))])
    shares = np.concatenate([[0.15], 0.85 * rng.dirichlet(np.full(n_towns - 1, 0.5))])
    town = rng.choice(n_towns, n_obs, p=shares / shares.sum())
    spreads = rng.uniform(0.03, 0.3, size=n_towns)
    places = towns[town] + spreads[town, None] * rng.normal(size=(n_obs, 2))
    distance = np.linalg.norm(places - city, axis=1)
    effects = rng.normal(scale=0.2, size=n_towns)
    level = 11.8 + 0.9 * np.exp(-distance / 1.5) + effects[town]
    return places, level + rng.normal(scale=0.5, size=n_obs)
