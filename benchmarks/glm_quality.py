"""Coresets of logistic regressions: distance from the full posterior against their size."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from benchmarks.closed_forms import Array
from benchmarks.curves import brief, verdict
from benchmarks.glm_data import BINARY, PRIOR_SD, SYNTHETIC, DataSet, synthetic
from benchmarks.glm_judge import Judge, judge_of, sample_weighted, seconds_of
from benchmarks.tables import markdown
from pymc_coresets import Sensitivity, build_coreset
from pymc_coresets.papers.sensitivity import Sensitivities, SignedBlocks
from pymc_coresets.papers.signed_rows import SignedRows
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.keyed import RowSample, random_key
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.sampler import CoresetSampler

SIZES = (100, 300, 1_000, 3_000, 10_000, 20_000)
UNIFORM, SENSITIVITY, AUTO = "uniform", "sensitivity", "auto"
BARE = "uniform, weights of 1"  # a subset that is not scaled up to all rows
METHOD = Sensitivity(n_clusters=4)  # the authors' choice for these data sets
N_DRAWS, N_REFERENCE, N_TEST = 1_000, 4_000, 100
NUTS_DRAWS = 2_000  # in two chains, after 300 tuning steps each
TIMED_SIZE = 1_000
ASKED_GAIN, ASKED_SHARE = 10.0, 0.1
_BLOCK = 2**14  # rows


@dataclass(frozen=True, kw_only=True)
class Quality:
    """One coreset: its rows, its distances from the full posterior, and what it predicts."""

    data: str
    method: str
    size: int
    rows: int
    mmd: float
    own_mmd: float
    test: float
    khat: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The full posterior of one data set."""

    data: str
    kinds: int
    khat: float
    ess: float
    noise: float
    own_noise: float
    test: float


@dataclass(frozen=True, kw_only=True)
class Share:
    """Seconds to build a coreset by sensitivities, and to sample its posterior by NUTS."""

    data: str
    size: int
    build: float
    bounds: float
    sample: float

    @property
    def share(self) -> float:
        return self.build / (self.build + self.sample)


@dataclass(frozen=True, kw_only=True)
class Results:
    references: list[Reference]
    qualities: list[Quality]
    shares: list[Share]


def run_quality(n_obs: int, n_repeats: int, n_auto: int) -> Results:
    """Build and judge all coresets; ``n_auto`` is the number of repeats of the default method."""
    results = Results(references=[], qualities=[], shares=[])
    for i, name in enumerate(SYNTHETIC):
        data = synthetic(name, n_obs, N_TEST, rng=np.random.default_rng([1, i]))
        loglik = LogLikelihood(find_observations(data.model()))
        judge = judge_of(
            data,
            N_REFERENCE,
            rng=np.random.default_rng([2, i]),
            total=None if name in BINARY else _all_rows(loglik),
        )
        results.references.append(_reference(judge))
        for repeat in range(n_repeats):
            rng = np.random.default_rng([3, i, repeat])
            results.qualities.extend(_sampled(judge, loglik.in_memory, rng))
        results.shares.extend(_shares(data, loglik))
        print(f"{name}: {n_repeats} repeats done", file=sys.stderr)
        for repeat in range(n_auto):
            results.qualities.append(_by_default(judge, seed=repeat))
            print(f"{name}: default method {repeat + 1} of {n_auto} done", file=sys.stderr)
    return results


def _all_rows(loglik: LogLikelihood) -> Callable[[Array], Array]:
    """Return the log-likelihood of all rows up to a constant, by parameters in prior units."""
    return lambda draws: loglik.sums({"theta": PRIOR_SD * draws}).total


def _reference(judge: Judge) -> Reference:
    return Reference(
        data=judge.data.name,
        kinds=judge.data.n_kinds(),
        khat=judge.full.khat,
        ess=judge.full.ess,
        noise=judge.mmd_noise(N_DRAWS, standard=True),
        own_noise=judge.mmd_noise(N_DRAWS, standard=False),
        test=judge.negative_test_loglik(judge.full.draws),
    )


def _sampled(judge: Judge, source: InMemoryRows, rng: np.random.Generator) -> Iterator[Quality]:
    """Judge coresets of all sizes by the two methods that sample rows."""
    data = judge.data
    seconds, sensitivities = seconds_of(lambda: _sensitivities(data, rng))
    for size in SIZES:
        chosen = source.subsample(size, key=random_key(rng))
        yield _judged(judge, UNIFORM, size, chosen, 0.0, rng)
        bare = replace(chosen, weights=chosen.weights * size / data.n_obs)
        yield _judged(judge, BARE, size, bare, 0.0, rng)
        chosen = sensitivities.draw(size, key=random_key(rng))
        yield _judged(judge, SENSITIVITY, size, chosen, seconds, rng)


def _sensitivities(data: DataSet, rng: np.random.Generator) -> Sensitivities:
    labels = np.where(data.y > 0, 1.0, -1.0)

    def signed(rows: Rows) -> SignedRows:
        x, y = rows.arrays
        return SignedRows(np.column_stack([y[:, None] * x, np.zeros(len(y))]), rows.case_weights)

    blocks = SignedBlocks(InMemoryRows([data.features, labels]), signed, _BLOCK)
    return Sensitivities.of(blocks, METHOD.bound, METHOD.n_clusters, rng=rng)


def _judged(
    judge: Judge,
    method: str,
    size: int,
    chosen: RowSample,
    seconds: float,
    rng: np.random.Generator,
) -> Quality:
    regression, weights = judge.data.weighted(chosen.rows.positions, chosen.weights)
    n_draws = N_REFERENCE if method == AUTO else N_DRAWS
    sample = sample_weighted(regression, weights, n_draws, rng=rng)
    return Quality(
        data=judge.data.name,
        method=method,
        size=size,
        rows=len(chosen.rows),
        mmd=judge.mmd(sample.draws, standard=True, max_draws=n_draws),
        own_mmd=judge.mmd(sample.draws, standard=False, max_draws=n_draws),
        test=judge.negative_test_loglik(sample.draws),
        khat=sample.khat,
        seconds=seconds,
    )


def _by_default(judge: Judge, *, seed: int) -> Quality:
    """Judge a coreset of the default method, which decides on the size itself."""
    model = judge.data.model()
    seconds, coreset = seconds_of(lambda: build_coreset(model, random_seed=seed, progressbar=False))
    chosen = RowSample(rows=Rows(coreset.indices, np.ones(coreset.size)), weights=coreset.weights)
    rng = np.random.default_rng([4, seed])
    return _judged(judge, AUTO, coreset.size, chosen, seconds, rng)


def _shares(data: DataSet, loglik: LogLikelihood) -> Iterator[Share]:
    """Time a construction from the model on, and NUTS on coresets of several sizes."""
    model = data.model()
    build, coreset = seconds_of(
        lambda: build_coreset(
            model, method=METHOD, size=TIMED_SIZE, random_seed=1, progressbar=False
        )
    )
    rng, source = np.random.default_rng(5), loglik.in_memory
    bounds, sensitivities = seconds_of(lambda: _sensitivities(data, rng))
    sampler = CoresetSampler(loglik)
    for _ in range(2):  # a Laplace approximation, and the compilation of NUTS
        sampler.draw(source.at(coreset.indices), coreset.weights, 100, rng=rng)
    for size in SIZES:
        chosen = sensitivities.draw(size, key=random_key(rng))
        rows = source.at(chosen.rows.positions)
        sample, _ = seconds_of(partial(sampler.draw, rows, chosen.weights, NUTS_DRAWS, rng=rng))
        yield Share(data=data.name, size=size, build=build, bounds=bounds, sample=sample)


# -- tables ----------------------------------------------------------------------------------------


def medians(results: Results, data: str, method: str, what: str) -> list[float]:
    """Return the medians over the repeats, one for each size."""
    own = [q for q in results.qualities if (q.data, q.method) == (data, method)]
    sizes = sorted({q.size for q in own})
    return [float(np.median([getattr(q, what) for q in own if q.size == s])) for s in sizes]


def quality_report(results: Results) -> str:
    names = [r.data for r in results.references]
    parts = [_reference_table(results)]
    for what, title in (
        ("mmd", "Polynomial MMD, coefficients in units of the full posterior"),
        ("own_mmd", "Polynomial MMD, coefficients on their own scale"),
        ("test", "Negative test log-likelihood, nats per row"),
    ):
        rows = [
            [name, method, *(_cell(value, what) for value in medians(results, name, method, what))]
            for name in names
            for method in (BARE, UNIFORM, SENSITIVITY)
        ]
        parts.append(f"#### {title}\n\n" + markdown(["data", "method", *_sizes()], rows))
    parts += ["#### The default method\n\n" + _default_table(results), _share_table(results)]
    return "\n\n".join([*parts, "\n".join(_verdicts(results))])


def _sizes() -> list[str]:
    return [f"M = {size:,}" for size in SIZES]


def _cell(value: float, what: str) -> str:
    return f"{value:.4f}" if what == "test" else brief(value)


def _reference_table(results: Results) -> str:
    headings = ["data", "distinct rows", "k-hat", "ESS", "MMD noise", "own scale", "test"]
    rows = [
        [
            r.data,
            f"{r.kinds}",
            f"{r.khat:.2f}",
            f"{r.ess:.0f}",
            f"{r.noise:.2f}",
            f"{r.own_noise:.4f}",
            f"{r.test:.4f}",
        ]
        for r in results.references
    ]
    return "#### The full posterior\n\n" + markdown(headings, rows)


def _default_table(results: Results) -> str:
    rows = [
        [
            q.data,
            f"{q.rows}",
            f"{q.mmd:.2g}",
            f"{q.own_mmd:.2g}",
            f"{q.test:.4f}",
            f"{q.seconds:.0f}",
        ]
        for q in results.qualities
        if q.method == AUTO
    ]
    return markdown(["data", "rows", "MMD", "own scale", "test", "seconds"], rows)


def _share_table(results: Results) -> str:
    rows = []
    for name in dict.fromkeys(s.data for s in results.shares):
        own = [s for s in results.shares if s.data == name]
        cells = [f"{s.sample:.1f} ({s.share:.0%})" for s in own]
        rows.append([name, f"{own[0].build:.1f}", f"{own[0].bounds:.1f}", *cells])
    headings = ["data", "build", "of it bounds", *_sizes()]
    return "#### Seconds: building by sensitivities, NUTS (build / (build + NUTS))\n\n" + markdown(
        headings, rows
    )


def gains(results: Results, data: str, what: str, over: str) -> list[float]:
    """Return how many times lower the sensitivities' median distance is than another method's."""
    ours, theirs = (medians(results, data, m, what) for m in (SENSITIVITY, over))
    return [their / our for their, our in zip(theirs, ours, strict=True)]


def _verdicts(results: Results) -> Iterator[str]:
    for over in (UNIFORM, BARE):
        for what, unit in (("mmd", "units of the posterior"), ("own_mmd", "own scale")):
            for name in BINARY:
                found = gains(results, name, what, over)
                asked = f"{name}, {unit}: MMD {ASKED_GAIN:g} times below that of {over}"
                line = verdict(asked, [gain >= ASKED_GAIN for gain in found])
                yield f"{line}: {', '.join(f'{gain:.2g}' for gain in found)}"
    for least in (SIZES[0], SIZES[-2]):
        own = [s for s in results.shares if s.size >= least]
        asked = f"construction at most {ASKED_SHARE:.0%} of construction and NUTS, M >= {least:,}"
        yield verdict(asked, [s.share <= ASKED_SHARE for s in own])
    worst = max(q.khat for q in results.qualities)
    yield f"- largest k-hat of the judge: {worst:.2f}"
