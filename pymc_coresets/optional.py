"""Rooms that stand on top of the package and may be missing: found by name, when they are used."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pymc_coresets.exceptions import CoresetError


def has_room(room: str) -> bool:
    """Whether a room of the package is there.

    Examples
    --------
    >>> has_room("rows"), has_room("roof")
    (True, False)
    """
    spec = find_spec(f"{__package__}.{room}")
    return spec is not None and spec.origin is not None  # not the empty folder of one


def module_of(path: str, *, user: str = "This") -> Any:  # noqa: ANN401 - its names are any
    """Return a room, or a module of one.

    Parameters
    ----------
    path : str
        The names of the room and of the module, with a dot between them.
    user : str
        What needs it, for the message.

    Raises
    ------
    CoresetError
        If the room is missing.

    Examples
    --------
    >>> module_of("roof.tiles", user="shelter()")
    Traceback (most recent call last):
    pymc_coresets.exceptions.CoresetError: shelter() needs pymc_coresets.roof, which is missing from
    this installation: install all of pymc-coresets. (docs: troubleshooting#other-errors)
    """
    room = path.split(".", maxsplit=1)[0]
    if not has_room(room):
        raise CoresetError(
            f"{user} needs {__package__}.{room}, which is missing from this installation: install "
            "all of pymc-coresets."
        )
    return import_module(f"{__package__}.{path}")
