"""PASS-GLM: from a generalised linear model to polynomial approximate sufficient statistics."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_coresets.exceptions import InvalidOptionError, UnsupportedModelError
from pymc_coresets.glm.predictor.finding import find_linear_predictor
from pymc_coresets.glm.predictor.predictors import Predictors, RowsInMemory
from pymc_coresets.glm.predictor.seen_rows import SeenRows, seen_rows_of
from pymc_coresets.options import flag, generator, positive_number, whole_number
from pymc_coresets.papers.polynomial.parts_of_data import MAX_DEGREE, PredictorRows, row_polynomials
from pymc_coresets.papers.polynomial.polynomial_summary import PolynomialSummary
from pymc_coresets.papers.polynomial.replacement import POLYNOMIAL, verify_polynomial_model
from pymc_coresets.papers.polynomial.statistics import (
    MAX_MONOMIALS,
    PolynomialStatistics,
    check_size,
    n_monomials,
)
from pymc_coresets.progress import Reporter
from pymc_coresets.reading.graphs import shapes_of
from pymc_coresets.reading.user_model import carry_over, convertible, given_model
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.of_model import RowsToRead, likelihood_of_prototypes, likelihood_of_rows
from pymc_coresets.rowlogp.verification import verify_rows
from pymc_coresets.rows.executors import HasSubmit
from pymc_coresets.rows.memory import one_blas_thread
from pymc_coresets.rows.sources.row_source import RowSource


def build_pass_glm(  # noqa: PLR0913
    model: pm.Model | None = None,
    *,
    degree: int = 2,
    radius: float | str = 4.0,
    given: Mapping[str, ArrayLike] | None = None,
    observed: str | Sequence[str] | None = None,
    dim: str | Sequence[str] | None = None,
    rows: RowSource | None = None,
    executor: HasSubmit | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> PolynomialSummary:
    """Summarise a generalised linear model by polynomial approximate sufficient statistics.

    One pass over the data replaces each row's log-likelihood, a function of the linear predictor
    eta_n = x_n . theta + offset, by a polynomial.  The result is one function of the coefficients,
    whose size does not depend on the number of rows.  Use it for regressions with many rows and
    predictors within a moderate range: it is the fastest method here.  If many predictors exceed
    the radius it is biased, which `PolynomialSummary.check` detects; use `build_coreset` then, and
    for models that are not generalised linear models.

    For p coefficients and degree 2 the pass costs 1 to 2 times as much as the product
    ``X.T @ X`` if few responses are distinct (binary and count data), and about 5 times as much
    otherwise.  Memory: X, unless the model holds it as one array, and O(p^2); with `rows`, 32 MB
    of X and two chunks instead of X.

    Parameters
    ----------
    model : pm.Model, optional
        By default that of the context.  It is not changed.
    degree : int, default 2
        Degree of the polynomials, at most 20.  Degrees above 2 need few coefficients: at most
        2,000 monomials of half the degree.  A degree whose polynomial may be unbounded above
        is refused; for logistic regression 2, 6, 10, ... are usable.
    radius : float or "auto", default 4.0
        The polynomials approximate the log-likelihood where ``|eta_n| <= radius``.  With "auto"
        it is chosen from the data to cover the predictors under the approximate posterior: 97.5 %
        of them for degree 2, and 99.9 % for higher degrees, with a margin.  The default is the
        paper's, for logistic regression.
    given : mapping of str to array_like, optional
        Values to fix free variables at, such as a noise scale: ``{"sigma": 1.0}``.
    observed : str or sequence of str, optional
        Observed variables to summarise; the others stay in the model unchanged.
    dim : str or sequence of str, optional
        Name of the observation dimension; the leading axis of the observed variables by default.
        With several, such as ``("item", "person")``, each cell of an observed matrix is a row.
    rows : RowSource, optional
        From `open_rows`: all rows, if the model's data containers hold only a few of them.  They
        are read twice (three times, if any codes look up coefficients): once for checks, and once
        for the sums; and once more for each round of ``radius="auto"``, and for its start.  The
        sums equal those of the same rows in memory, whatever the chunks.
    executor : Executor or dask.distributed.Client, optional
        Reads and sums such rows: a `concurrent.futures.Executor`, such as a
        ``ProcessPoolExecutor``, or the client of a Dask cluster; by default threads of this
        process.  The result is the same bit for bit.
    random_seed : int or Generator, optional
        For comparing with PyMC's own log-likelihood at random points, and for ``radius="auto"``.
    progressbar : bool, default True
        Show progress: the steps, and the number of rows read.

    Returns
    -------
    PolynomialSummary

    Raises
    ------
    UnsupportedModelError
        If the model is not a generalised linear model, or another free variable enters its
        likelihood (fix it with `given`); if something in it cannot be computed row by row (with
        `rows`).
    InvalidOptionError
        If `model` is not a model, an option has the wrong type or is out of range, there are too
        many monomials, or the polynomial is unbounded above.
    InvalidDataError
        If data are not finite, or a log-likelihood is not finite within the radius; if `rows` hold
        values that cannot be used, or have changed while they were read.

    Warns
    -----
    CoresetWarning
        If ``radius="auto"`` has not converged after 20 rounds.

    Notes
    -----
    On ``[-R, R]`` each row's log-likelihood is expanded in Chebyshev polynomials, cut at the
    degree K: ``sum_n log p(y_n | eta_n) ~ sum_n sum_m b_nm (x_n . theta + o_n)^m``.  The error is
    exponentially small in K for smooth likelihoods, and zero if the log-likelihood is itself a
    polynomial of that degree (Gaussian).

    ``radius="auto"`` starts from R = 4, and repeats: summarise with degree 2, draw from the
    Gaussian posterior (with a unit-information prior if the model's is not Gaussian), and set R to
    the 97.5 % quantile of ``|eta_n|`` over draws and rows (at most 100,000 of them), at least 1,
    until it changes by less than 5 %.  A radius whose polynomial is unbounded above is too small.
    If the steps overshoot, the remaining interval is halved.  Each round is a pass over the data.
    For higher degrees, R is 1.1 times the 99.9 % quantile in the last round.

    References
    ----------
    Huggins, J. H., Adams, R. P. and Broderick, T. (2017). PASS-GLM: polynomial approximate
    sufficient statistics for scalable Bayesian GLM inference.
    https://doi.org/10.48550/arXiv.1709.09216

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(2_000, 3))
    >>> y = rng.binomial(1, 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.2])))
    >>> with pm.Model() as model:
    ...     beta = pm.Normal("beta", 0, 10, shape=3)
    ...     likelihood = pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    ...     summary = build_pass_glm(random_seed=1, progressbar=False)
    >>> summary
    PolynomialSummary
      rows          2,000
      coefficients  3
      degree        2
      radius        4
    >>> summary.closed_form()["coefficient"].values.tolist()
    ['beta[0]', 'beta[1]', 'beta[2]']

    For rows that need not fit into memory, the model holds a few of them:

    >>> from pymc_coresets import open_rows
    >>> rows = open_rows({"X": X, "y": y})  # or files, lazy arrays, ...
    >>> with pm.Model() as model:
    ...     data = {name: pm.Data(name, some) for name, some in rows.head(100).items()}
    ...     beta = pm.Normal("beta", 0, 10, shape=3)
    ...     likelihood = pm.Bernoulli("likelihood", logit_p=data["X"] @ beta, observed=data["y"])
    ...     streamed = build_pass_glm(rows=rows, random_seed=1, progressbar=False)
    >>> np.allclose(streamed.closed_form()["mean"], summary.closed_form()["mean"], rtol=1e-12)
    True
    """
    degree = whole_number("degree", degree, least=1, most=MAX_DEGREE)
    fixed_radius = _radius(radius)
    wanted = RowsToRead(observed=observed, dim=dim, rows=rows, executor=executor)
    rng, show_bars = generator(random_seed), flag("progressbar", progressbar)
    model = given_model(model)
    if POLYNOMIAL in model.named_vars:
        raise UnsupportedModelError(
            "This model already belongs to a summary. Build another summary from the full model."
        )
    with Reporter(show=show_bars) as report, one_blas_thread():
        with report.part("reading the model"):
            model = model if given is None else fix_variables(model, given)
            verified: Callable[..., PredictorRows]
            if rows is None:
                observations, verified = wanted.found_in(model), _verified_held
            else:
                observations = likelihood_of_prototypes(model, rows.columns, wanted).observations
                verified = _verified_read
            held = find_linear_predictor(observations)
            check_size(degree, len(held.names))
            part = verified(held, wanted, rng.spawn(1)[0], report)
        if fixed_radius is None:
            with report.passes("choosing the radius", part.loglikelihood.n_rows) as show:
                own = rng.spawn(1)[0]
                fixed_radius = part.settled_radius(degree, rng=own, show=show)
        with report.passes("summing polynomials", part.loglikelihood.n_rows) as show:
            statistics = part.statistics(degree, fixed_radius)
            show(part.loglikelihood.n_rows)
        if not statistics.is_proper:
            raise _improper(part.held, statistics)
        summary = PolynomialSummary(statistics=statistics, parts=(part,), progressbar=show_bars)
        verify_polynomial_model(part.held, statistics, summary.model)
    return summary


def _verified_held(
    found: Predictors, _: RowsToRead, rng: np.random.Generator, __: Reporter
) -> PredictorRows:
    """Compare the derived log-likelihood of the model's own rows with PyMC's before the pass."""
    verify_rows(LogLikelihood(found.observations), rng=rng)
    return PredictorRows(SeenRows(found), LogLikelihood(found.observations, collapse="auto"))


def _verified_read(
    found: Predictors, wanted: RowsToRead, rng: np.random.Generator, report: Reporter
) -> PredictorRows:
    """Compare that of rows from elsewhere, and check these."""
    model = found.observations.model
    loglik = likelihood_of_rows(model, wanted, rng=rng, watch=report.rows_read)
    return PredictorRows(seen_rows_of(loglik, find_linear_predictor), loglik)


def _radius(radius: float | str) -> float | None:
    """Return the radius, or None if it is to be chosen."""
    if isinstance(radius, str) and radius == "auto":
        return None
    try:
        return positive_number("radius", radius)
    except InvalidOptionError:
        raise InvalidOptionError(
            f"radius={radius!r} must be a positive, finite number, or 'auto'."
        ) from None


# -- variables that are fixed ----------------------------------------------------------------------


def fix_variables(model: pm.Model, given: Mapping[str, ArrayLike]) -> pm.Model:
    """Fix free variables at values, such as a scale that is not part of the linear predictor.

    Parameters
    ----------
    model : pm.Model
        It is not changed.
    given : mapping of str to array_like
        Name of each free variable to fix, and its value: of the variable's shape, on its own
        (constrained) scale.

    Returns
    -------
    pm.Model
        A model with data in place of the variables, and without their priors.

    Raises
    ------
    InvalidOptionError
        If `given` is not a mapping, a name is not a free variable of the model, or a value is not
        finite or has another shape or type.
    UnsupportedModelError
        If an initial value of the model is symbolic.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     sigma = pm.HalfNormal("sigma")
    ...     y = pm.Normal("y", pm.Normal("mu"), sigma, observed=[0.0, 1.0])
    >>> [v.name for v in fix_variables(model, {"sigma": 2.0}).free_RVs]
    ['mu']
    """
    if not isinstance(given, Mapping):
        raise InvalidOptionError(
            f"given is a {type(given).__name__}, but must map names of free variables to their "
            'values, as in given={"sigma": 1.0}.'
        )
    values = {name: _value(name, value, model) for name, value in given.items()}
    if not values:
        return model
    fixed: pm.Model = pm.do(convertible(model), values)
    carry_over(model, fixed)
    return fixed


def _value(name: str, value: ArrayLike, model: pm.Model) -> np.ndarray:
    free = {rv.name: rv for rv in model.free_RVs}
    if name not in free:
        found = "is not a free variable" if name in model.named_vars else "is not a variable"
        raise InvalidOptionError(
            f"given: {name!r} {found} of the model. Its free variables are {list(free)!r}."
        )
    dtype, [shape] = np.dtype(free[name].type.dtype), shapes_of([free[name]])
    whole = dtype.kind in "biu"
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # a nested list that is not an array, or a whole tree
        array = np.array(None)
    usable = array.dtype.kind in "biuf" and array.shape == shape and np.isfinite(array).all()
    if not usable or (whole and not np.array_equal(array, array.astype(dtype))):
        raise InvalidOptionError(
            f"given[{name!r}] must be {'whole' if whole else 'finite'} numbers of shape {shape}, "
            f"not {value!r}."
        )
    return array.astype(dtype)


# -- degrees ---------------------------------------------------------------------------------------


def _improper(found: Predictors, statistics: PolynomialStatistics) -> InvalidOptionError:
    radius, leading = statistics.radius, statistics.leading_degree
    usable = _usable_degrees(found, radius)
    remedy = f"Usable degrees here are {usable}" if usable else "No degree is surely usable here"
    return InvalidOptionError(
        f"degree={statistics.degree} with radius={radius:g} is improper: the polynomial, of "
        f"leading degree {leading}, may grow without bound in a direction of the coefficients. "
        f"{remedy}; or use another radius (one that covers the responses, if these are not "
        "within it)."
    )


def _usable_degrees(found: Predictors, radius: float) -> list[int]:
    """Return the degrees whose leading coefficient is negative for each of the first rows."""
    n_coefficients, usable = len(found.names), []
    first = np.arange(min(found.observations.n_obs, 1_000))
    rows = RowsInMemory(found, first, np.ones(len(first)))
    for degree in range(2, MAX_DEGREE // 2 + 1, 2):
        if degree > 2 and n_monomials(n_coefficients, degree // 2) > MAX_MONOMIALS:
            break
        some = row_polynomials(rows, degree, radius)
        amounts = np.abs(some).max(axis=0) * radius ** np.arange(degree + 1)
        if (some[:, degree] < 0).all() and amounts[degree] > 1e-10 * amounts.max():
            usable.append(degree)
    return usable
