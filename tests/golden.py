"""A record of what builds give at fixed seeds: ``python -m tests.golden FILE [--part 1/4]``.

Every model of the zoo is built by default settings, and every eighth by each method; sums of
degrees 2 and 4 and the sensitivities of logistic regressions come with them.  The first run
writes indices, weights, objective and text of each to FILE; later ones compare with it, and print
what differs.  It is meant for changes that must not change results, on one machine whose caches of
compiled functions are full, as after another run: PyTensor lets Numba reorder sums (`fastmath`),
and what it has just compiled has other last digits than what is read from disk.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor

from pymc_coresets import CoresetError, build_coreset, build_pass_glm
from pymc_coresets.request import known_methods
from tests.models import (  # noqa: F401  (each enters its models into the table)
    zoo_cells,
    zoo_families,
    zoo_industry,
    zoo_likelihoods,
    zoo_series,
    zoo_structures,
)
from tests.models.zoo import CASES

EVERY = 8  # of the zoo's models, for the methods that are not the default
N_CHOSEN = 12
OF_ROWS = [name for name in known_methods() if name not in {"control_variates", "sensitivity"}]
TOLERANCE = 1e-6  # relative: where a search for a mode ends depends on the last digits of sums


def _logistic() -> pm.Model:
    rng = np.random.default_rng(3)
    design = rng.normal(size=(3_000, 4))
    outcome = rng.random(3_000) < 1 / (1 + np.exp(-(design @ [0.3, -1.0, 0.5, 0.2])))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=4)
        pm.Bernoulli("y", logit_p=design @ b, observed=outcome.astype(int))
    return model


def _wide() -> pm.Model:
    rng = np.random.default_rng(4)
    design = rng.normal(size=(4_000, 30))
    outcome = rng.poisson(np.exp(0.3 * design @ rng.normal(size=30) / 5))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=30)
        pm.Poisson("y", mu=pm.math.exp(design @ b), observed=outcome)
    return model


def _users() -> pm.Model:
    rng = np.random.default_rng(5)
    user = np.repeat(np.arange(300), 4)
    design = rng.normal(size=(user.size, 2))
    effect = rng.normal(size=300)
    outcome = rng.random(user.size) < 1 / (1 + np.exp(-(design @ [1, -0.5] + effect[user])))
    with pm.Model(coords={"user": np.arange(300)}) as model:
        s = pm.HalfNormal("s", 1)
        b = pm.Normal("b", 0, 1, shape=2)
        z = pm.Normal("z", 0, 1, dims="user")
        pm.Bernoulli("y", logit_p=design @ b + s * z[user], observed=outcome.astype(int))
    return model


def builds() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each build, and what builds it."""
    for n, (name, case) in enumerate(CASES.items()):
        yield f"{name} | auto", lambda case=case: _built(case.model(), case.options)
        if n % EVERY == 0:
            for method in OF_ROWS:
                yield (
                    f"{name} | {method}",
                    lambda case=case, method=method: _built(case.model(), case.options, method),
                )
    for name, model in (("logistic", _logistic), ("wide", _wide), ("users", _users)):
        for method in ("auto", "control_variates", *OF_ROWS, "sensitivity"):
            yield (
                f"{name} | {method}",
                lambda model=model, method=method: _built(model(), {}, method),
            )
    for degree in (2, 4):
        yield f"logistic | PASS {degree}", lambda degree=degree: _sums(degree)


def _built(model: pm.Model, options: Any, method: str = "auto") -> dict[str, Any]:
    chosen = {} if method in {"auto", "control_variates", "exact"} else {"size": N_CHOSEN}
    coreset = build_coreset(
        model, method=method, random_seed=1, progressbar=False, **chosen, **options
    )
    quadratic = coreset.quadratic
    return {
        "indices": coreset.indices.tolist(),
        "weights": coreset.weights.tolist(),
        "objective": float(coreset.objective),
        "slope": [] if quadratic is None else np.ravel(quadratic.slope).tolist(),
        "text": coreset.status,
    }


def _sums(degree: int) -> dict[str, Any]:
    fit = build_pass_glm(_logistic(), degree=degree, random_seed=1, progressbar=False)
    draws = fit.sample(draws=200, chains=2, random_seed=1, progressbar=False)
    means = np.ravel(draws.posterior["b"].mean(("chain", "draw")).values)
    return {"indices": [], "weights": means.tolist(), "objective": 0.0, "slope": [], "text": ""}


def _recorded(build: Callable[[], Any]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return build()
        except CoresetError as error:
            return {"error": f"{type(error).__name__}: {error}"}


def _difference(now: dict[str, Any], then: dict[str, Any]) -> str:
    """Say what differs; empty where nothing does."""
    if now.keys() != then.keys():
        return f"{then.get('error', 'a coreset')!r:.150} became {now.get('error', 'one')!r:.150}"
    for name, a in now.items():
        b = then[name]
        if isinstance(a, str):
            if a != b:
                return f"{name}: {b[:200]!r} became {a[:200]!r}"
        elif np.shape(a) != np.shape(b) or not np.allclose(
            a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
        ):
            return f"{name}: {str(b)[:100]} became {str(a)[:100]}"
    return ""


def main() -> None:
    """Write the record, or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--only", default="", help="builds whose names contain this")
    options = parser.parse_args()
    pytensor.config.blas__ldflags = ""
    part, n_parts = map(int, options.part.split("/"))
    path = options.file.with_suffix(f".{part}of{n_parts}.json")
    then = json.loads(path.read_text()) if path.exists() else None
    now, differing = {}, 0
    for n, (name, build) in enumerate(builds()):
        if n % n_parts != part - 1 or options.only not in name:
            continue
        now[name] = json.loads(json.dumps(_recorded(build)))
        if then is not None and (difference := _difference(now[name], then.get(name, {}))):
            differing += 1
            sys.stdout.write(f"{name}: {difference}\n")
    if then is None:
        path.write_text(json.dumps(now, indent=0))
    sys.stdout.write(f"{len(now)} builds, {differing} differ\n")
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
