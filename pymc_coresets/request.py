"""The user's choice of a method: its name or options, and the arguments that it uses."""

from collections.abc import Collection, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, cast

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.glm.control_variates.method import ControlVariates
from pymc_coresets.glm.sensitivity import Sensitivity
from pymc_coresets.methods import METHODS
from pymc_coresets.methods.job import Method
from pymc_coresets.methods.plain import Exact
from pymc_coresets.options import positive_number
from pymc_coresets.reading.draws import Draws

_METHODS: Mapping[str, type[Any]] = {
    **METHODS,
    ControlVariates.name: ControlVariates,
    Sensitivity.name: Sensitivity,
}


def asked_method(
    method: Any,  # noqa: ANN401 - what users pass
    kinds: Collection[type[Any]] = _METHODS.values(),
) -> Any:  # noqa: ANN401 - one of these kinds
    """Return the options of a method that is given by name, or by its options.

    Parameters
    ----------
    method : str or option object
    kinds : collection of type, optional
        The methods that may be asked for; by default all.

    Raises
    ------
    InvalidOptionError
        If there is no such method.

    Examples
    --------
    >>> asked_method("uniform")
    Uniform()
    """
    known = {kind.name: kind for kind in kinds}
    if isinstance(method, str) and method in known:
        return known[method]()
    if not isinstance(method, tuple(kinds)):
        raise InvalidOptionError(
            f"method={method!r} is unknown: use one of {list(known)!r}, or an object of its "
            "options such as ControlVariates()."
        )
    return method


def configured(method: Method, given: Mapping[str, Any]) -> Method:
    """Return the method with the user's tolerance; refuse what it does not use."""
    for option, value in given.items():
        if value is not None and option not in method.accepts:
            raise InvalidOptionError(
                f"{option}={named_option(value)}: method={method.name!r} does not use it, for "
                f"{_why_not(option, method)} Leave it out, or use {_methods_that_accept(option)}."
            )
    if given["time_budget"] is not None:
        positive_number("time_budget", given["time_budget"])
    if given["tolerance"] is None:
        return method
    tolerance = positive_number("tolerance", given["tolerance"])
    return cast(Method, replace(cast(Any, method), tolerance=tolerance))


def named_option(option: Any) -> str:  # noqa: ANN401
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
    sizes: Mapping[type[Any], str] = {
        Exact: "it keeps all distinct rows.",
    }
    reasons = {
        "size": sizes.get(type(method), "its size follows from epsilon."),
        "tolerance": "it does not measure a divergence to stop at.",
        "time_budget": "it has no rounds.",
        "rows": "it needs all rows in memory, or evaluates them hundreds of times.",
        "weighting": f"it draws from {method.draws_from}."
        if method.draws_from != "none"
        else "it compares no rows at draws.",
    }
    return reasons[option]


def _methods_that_accept(option: str) -> str:
    names: Collection[str] = [n for n, m in _METHODS.items() if option in m().accepts]
    return "method=" + " or ".join(map(repr, names))
