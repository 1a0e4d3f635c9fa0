"""What users choose: `Jax`, or nothing, for Numba."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import one_of

_SINGLE = 1e-3  # nats, absolute or for each nat, by which potentials in float32 may be off


@dataclass(frozen=True, kw_only=True)
class Jax:
    """Potentials of all rows by JAX, on its default device: a GPU where there is one.

    Use it as ``backend=Jax(dtype="float32")``, or ``backend="jax"`` for float64.  Without a GPU,
    Numba is faster.  Sums over rows and over draws, and all gradients, are in float64 whatever the
    type.

    Parameters
    ----------
    dtype : {"float64", "float32"}
        Type of the potentials of single rows.  Most GPUs compute much faster in float32, where a
        potential is off by about 1e-7 of the largest term in it, which may be far larger, and is
        -inf where a probability is below 6e-8.  `build_coreset` compares it with float64.

    Raises
    ------
    InvalidOptionError
        If there is no such type.

    Examples
    --------
    >>> Jax(dtype="float32")
    Jax(dtype='float32')
    """

    dtype: str = "float64"

    def __post_init__(self) -> None:
        one_of("dtype", self.dtype, ["float64", "float32"])

    @property
    def slack(self) -> float:
        """By how much potentials may differ from exact ones, beyond what rounding in float64 does.

        In nats, and relative to their size.
        """
        return _SINGLE if self.dtype == "float32" else 0.0


def backend_of(backend: Any, executor: Any = None) -> Jax | None:  # noqa: ANN401 - of users
    """Return the options of a backend; None for Numba, which has none.

    Raises
    ------
    InvalidOptionError
        If there is no such backend, or JAX is not installed; or there is an executor, while the
        rows are evaluated on a device of this process.

    Examples
    --------
    >>> backend_of("numba", "an executor") is None
    True
    >>> backend_of("cuda")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: backend='cuda' must be one of ['numba', 'jax'], or
    options such as Jax(dtype='float32'). (docs: troubleshooting#arguments)
    >>> backend_of(Jax(), "an executor")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: executor='an executor': backend='jax' evaluates the
    rows on a device of this process. Leave executor out, or use backend='numba'.
    (docs: troubleshooting#arguments)
    """
    if isinstance(backend, str) and backend == "numba":
        return None
    chosen = Jax() if isinstance(backend, str) and backend == "jax" else backend
    if not isinstance(chosen, Jax):
        raise InvalidOptionError(
            f"backend={backend!r} must be one of ['numba', 'jax'], or options such as "
            "Jax(dtype='float32')."
        )
    if find_spec("jax") is None:
        raise InvalidOptionError(
            f'backend={backend!r} needs the package jax: pip install "pymc-coresets[jax]", and '
            "jax[cuda13] or the like for a GPU."
        )
    if executor is not None:
        raise InvalidOptionError(
            f"executor={executor!r}: backend='jax' evaluates the rows on a device of this process. "
            "Leave executor out, or use backend='numba'."
        )
    return chosen
