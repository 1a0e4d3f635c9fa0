"""The cost of PASS-GLM's pass over the data, and data that it is not suited to."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pymc as pm

from benchmarks.closed_forms import Array
from benchmarks.curves import verdict
from benchmarks.glm_data import out_of_reach
from benchmarks.glm_judge import seconds_of
from pymc_coresets import build_pass_glm
from pymc_coresets.glm.predictor.finding import find_linear_predictor
from pymc_coresets.glm.predictor.seen_rows import SeenRows
from pymc_coresets.papers.polynomial.parts_of_data import PredictorRows
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood

REPEATS = 3
ASKED_RATIO, ASKED_MEMORY = 2.0, 200e6
FAILING_ROWS, FAILING_SHARE = 100_000, 0.3
_BLOCK = 100_000
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def one_pass_report(n_obs: int, n_columns: int) -> str:
    """Compare time and memory of a pass over a logistic regression's rows with ``X.T @ X``."""
    model = _model(n_obs, n_columns)
    features = model["x"].get_value(borrow=True)
    loglik = LogLikelihood(find_observations(model))
    seen = SeenRows(find_linear_predictor(loglik.observations))
    sums, design = PredictorRows(seen, loglik), seen.found.predictors[0].design
    same = isinstance(design, np.ndarray) and np.shares_memory(design, features)
    products, passes, memory = [], [], []
    for _ in range(REPEATS):  # in turn, so that other programs slow both alike
        products.append(seconds_of(lambda: features.T @ features)[0])
        extra, seconds = extra_memory(lambda: seconds_of(lambda: sums.statistics(2, 4.0))[0])
        passes.append(seconds)
        memory.append(extra)
    extra, (whole, _) = extra_memory(
        lambda: seconds_of(lambda: build_pass_glm(model, random_seed=1, progressbar=False))
    )
    product, least = min(products), min(passes)
    which = "X itself" if same else "a copy of X"
    lines = [
        f"N = {n_obs:,}, p = {n_columns}, float64: X of {features.nbytes / 1e9:.1f} GB",
        "",
        f"- `X.T @ X`: {product:.2f} s; the pass: {least:.2f} s; ratio {least / product:.2f}",
        f"- memory of the pass beyond X: {max(memory) / 1e6:.0f} MB",
        f"- `build_pass_glm`: {whole:.1f} s, {extra / 1e6:.0f} MB (its design matrix is {which})",
        "",
        verdict(f"the pass takes at most {ASKED_RATIO:g} times X.T @ X", [least <= 2 * product]),
        verdict(f"memory beyond X below {ASKED_MEMORY / 1e6:.0f} MB", [max(memory) < ASKED_MEMORY]),
    ]
    return "\n".join(lines)


def _model(n_obs: int, n_columns: int) -> pm.Model:
    """Return a model whose data PyMC copied; X is in memory only once afterwards."""
    features, y = _made(n_obs, n_columns)
    with pm.Model() as model:
        x = pm.Data("x", features)
        theta = pm.Normal("theta", 0, 1, shape=n_columns)
        pm.Bernoulli("y", logit_p=x @ theta, observed=y)
    return model


def _made(n_obs: int, n_columns: int) -> tuple[Array, Array]:
    """Simulate the data of a logistic regression, in place."""
    rng = np.random.default_rng(8)
    features, y = np.empty((n_obs, n_columns)), np.empty(n_obs, dtype=np.int8)
    effects = np.linspace(-1, 1, n_columns) / np.sqrt(n_columns)
    for start in range(0, n_obs, _BLOCK):
        block = features[start : start + _BLOCK]
        rng.standard_normal(out=block)
        y[start : start + _BLOCK] = rng.random(len(block)) < 1 / (1 + np.exp(-block @ effects))
    return features, y


def extra_memory[T](run: Callable[[], T]) -> tuple[float, T]:
    """Measure the memory at the peak beyond that at the start, in bytes (Linux)."""
    _CLEAR.write_text("5")  # resets the peak
    before = _resident("VmRSS")
    result = run()
    return _resident("VmHWM") - before, result


def _resident(what: str) -> float:
    line = next(s for s in _STATUS.read_text().splitlines() if s.startswith(what))
    return 1024.0 * int(line.split()[1])


def failing_report() -> str:
    """Report what `check` says where many rows lie beyond the radius."""
    data = out_of_reach(FAILING_ROWS, share=FAILING_SHARE, rng=np.random.default_rng(9))
    summary = build_pass_glm(data.model(), random_seed=1, progressbar=False)
    check = summary.check(random_seed=1)
    lines = [
        f"N = {data.n_obs:,}, {FAILING_SHARE:.0%} of the rows with |eta| > 4",
        "",
        "```",
        repr(check),
        "```",
        "",
        verdict("check() says that it is not reliable", [not check.reliable]),
    ]
    return "\n".join(lines)
