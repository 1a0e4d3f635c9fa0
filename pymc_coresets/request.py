"""What users ask of a construction: the method, the arguments that it uses, and the rows."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, cast

import numpy as np
import pymc as pm

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.glm.control_variates.method import ControlVariates
from pymc_coresets.methods import METHODS
from pymc_coresets.methods.exact_or_uniform import Exact
from pymc_coresets.methods.job import Method
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.optional import has_room, module_of
from pymc_coresets.options import flag, generator, positive_number
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.rowlogp.of_model import RowsToRead, full_model
from pymc_coresets.sampling.weighting import Weighting, weighting_of
from pymc_coresets.solving.solution import Solution, Status

#: What an object has that is a `Method`.
_MEMBERS: Mapping[str, Any] = {
    "name": str,
    "accepts": Collection,
    "draws_from": str,
    "default_size": Callable,
    "run": Callable,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """What a user asks of `build_coreset`, checked, but for what depends on the data.

    Parameters
    ----------
    model : pm.Model
    method : Method
        With the tolerance that was given.
    name : str
        What the coreset calls this method.
    given : mapping
        Those of size, tolerance, time_budget, weighting and rows that were given.
    reading : RowsToRead
    rng : numpy.random.Generator
    random_seed : int, optional
        The seed that `rng` is from, if it is a number.
    progressbar : bool
    automatic : bool
        Whether the model decides which method is used.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.build import requested
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=[0.0, 1.0])
    >>> asked = requested(model), requested(model, size=1), requested(model, integrate="mu")
    >>> [request.asks_for_coreset for request in asked]
    [False, True, True]
    """

    model: pm.Model
    method: Method
    name: str
    given: Mapping[str, Any]
    reading: RowsToRead
    rng: np.random.Generator
    random_seed: int | None
    progressbar: bool
    automatic: bool

    @classmethod
    def of(
        cls,
        model: object,
        *,
        method: str | Method,
        size: int | None,
        tolerance: float | None,
        weighting: str | Weighting | DrawsLike | None,
        time_budget: float | None,
        random_seed: int | np.random.Generator | None,
        progressbar: bool,
        **reading: Any,  # noqa: ANN401
    ) -> "Request":
        """Check the arguments of `build_coreset`; all others are those of `RowsToRead`."""
        options: dict[str, Any] = {"size": size, "tolerance": tolerance, "time_budget": time_budget}
        options |= {"weighting": weighting, "rows": reading["rows"]}
        given = {name: value for name, value in options.items() if value is not None}
        if "rows" in given:
            given["rows"] = "..."  # for messages
        if "weighting" in given:
            weighting_of(weighting)
        return cls(
            method=configured(asked_method(method, ["auto", *known_methods()], others=True), given),
            name=named_method(method),
            given=given,
            reading=RowsToRead(**reading),
            rng=generator(random_seed),
            random_seed=int(random_seed) if isinstance(random_seed, int | np.integer) else None,
            progressbar=flag("progressbar", progressbar),
            automatic=method == "auto" and "size" not in given,
            model=full_model(model),
        )

    @property
    def asks_for_coreset(self) -> bool:
        """Whether an option says how rows are chosen, or what a row is: other draws would not do.

        Which terms are observed, and that levels' variables are left alone, is said of any draws.
        """
        wanted = self.reading
        own = wanted.are_elsewhere or wanted.allow_local or wanted.named is not None
        return own or not self.automatic

    def after(self, seconds: float) -> "Request":
        """Return the same with what is left of its time_budget after so many seconds."""
        if "time_budget" not in self.given:
            return self
        left = max(self.given["time_budget"] - seconds, 0.0)
        return replace(self, given={**self.given, "time_budget": left})


def known_methods() -> Mapping[str, type[Method]]:
    """Return the options of all methods that have a name: those of `papers` too, if it is there.

    Examples
    --------
    >>> known_methods()["giga"]()
    GIGA(tolerance=None, polish=True)
    """
    of_papers = module_of("papers").METHODS if has_room("papers") else {}
    return {**METHODS, ControlVariates.name: ControlVariates, **of_papers}


def asked_method(
    method: object,
    names: Collection[str],
    *,
    others: bool = False,
) -> Any:  # noqa: ANN401 - the options of one of these, or another `Method`
    """Return the options of a method that is given by name, or by its options.

    Parameters
    ----------
    method : str or Method
    names : collection of str
        The methods that may be asked for.
    others : bool, default False
        Whether any other object will do that has the members of a `Method`.

    Raises
    ------
    InvalidOptionError
        If there is no such method, or the object lacks a member.

    Examples
    --------
    >>> asked_method("uniform", ["uniform"])
    Uniform()
    """
    every: dict[str, type[Method]] = {"auto": RiemannianPursuit, **known_methods()}
    known = {name: every[name] for name in names if name in every}
    if isinstance(method, str) and method in known:
        return known[method]()
    if isinstance(method, tuple(known.values())):
        return method
    missing = [n for n, kind in _MEMBERS.items() if not isinstance(getattr(method, n, None), kind)]
    if not others or isinstance(method, type) or len(missing) == len(_MEMBERS):
        call = f" Call the class: {method.__name__}()." if isinstance(method, type) else ""
        raise InvalidOptionError(
            f"method={method!r} is unknown: use one of {list(known)!r}, or an object of its "
            f"options such as ControlVariates().{call}"
        )
    if missing:
        raise InvalidOptionError(
            f"method={method!r} lacks {', '.join(missing)}: see 'Adding a method' in the "
            "documentation for what a method has."
        )
    return method


def named_method(method: Any) -> str:  # noqa: ANN401 - a name, or a `Method`
    """Return what a coreset calls the method that it was asked for.

    Examples
    --------
    >>> from pymc_coresets import IHT
    >>> named_method("giga"), named_method(IHT(tolerance=0.1))
    ('giga', 'IHT(tolerance=0.1, max_iterations=100)')
    """
    if isinstance(method, str):
        return RiemannianPursuit.name if method == "auto" else method
    return repr(method) if is_dataclass(method) else str(method.name)


def required_solution(found: object, method: Method, size: int) -> Solution:
    """Return what a method has found, if it is sorted rows with positive weights, at most `size`.

    Raises
    ------
    InvalidOptionError
        If it is not.
    """
    if not isinstance(found, Solution):
        what = f"a {type(found).__name__}, not a Solution"
    elif not isinstance(found.status, Status):
        what = f"the status {found.status!r}, not a Status"
    elif np.shape(found.weights) != (len(found.rows),):
        what = f"weights of shape {np.shape(found.weights)} for {len(found.rows)} rows"
    elif not isinstance(found.weights, np.ndarray):
        what = f"weights that are a {type(found.weights).__name__}, not an array"
    elif not (np.isfinite(found.weights) & (found.weights > 0)).all():
        what = "weights that are not positive and finite"
    elif len(found.rows) > size:
        what = f"{len(found.rows)} rows, more than size={size}"
    elif not (np.diff(found.rows.positions) > 0).all():
        what = (
            "rows whose positions do not increase, or repeat: sort the indices given to Rows.take, "
            "and add up the weights of equal ones"
        )
    else:
        return found
    raise InvalidOptionError(f"method={method.name!r} returned {what}.")


def configured(method: Method, given: Mapping[str, object]) -> Method:
    """Return the method with the tolerance that was given; refuse what it does not use."""
    for option, value in given.items():
        if option not in method.accepts:
            raise InvalidOptionError(
                f"{option}={named_option(value)}: method={method.name!r} does not use it, for "
                f"{_why_not(option, method)} Leave it out, or use {_methods_that_accept(option)}."
            )
    if "time_budget" in given:
        positive_number("time_budget", given["time_budget"])
    if "tolerance" not in given:
        return method
    tolerance = positive_number("tolerance", given["tolerance"])
    if not (is_dataclass(method) and hasattr(method, "tolerance")):
        raise InvalidOptionError(
            f"method={method.name!r} accepts a tolerance, but is no dataclass with this field."
        )
    return cast(Method, replace(cast(Any, method), tolerance=tolerance))


def named_option(option: object) -> str:
    """Return an option in a few words.

    Examples
    --------
    >>> named_option(0.5), named_option([1.0, 2.0])
    ('0.5', "user's draws")
    """
    if isinstance(option, str | int | float):
        return str(option)
    return (
        repr(option) if is_dataclass(option) and not isinstance(option, Draws) else "user's draws"
    )


def _why_not(option: str, method: Method) -> str:
    if not isinstance(method, tuple(known_methods().values())):
        return "it is not among the arguments that the method accepts."
    is_exact = isinstance(method, Exact)
    reasons = {
        "size": "it keeps all distinct rows." if is_exact else "its size follows from epsilon.",
        "tolerance": "it does not measure a divergence to stop at.",
        "time_budget": "it has no rounds.",
        "rows": "it needs all rows in memory, or evaluates them hundreds of times.",
        "weighting": f"it draws from {method.draws_from}."
        if method.draws_from != "none"
        else "it compares no rows at draws.",
    }
    return reasons[option]


def _methods_that_accept(option: str) -> str:
    names: Collection[str] = [n for n, m in known_methods().items() if option in m().accepts]
    return "method=" + " or ".join(map(repr, names))
