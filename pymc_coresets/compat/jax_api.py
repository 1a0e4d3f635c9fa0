"""All that is used of JAX, and of PyTensor's translation of graphs into JAX, in one place.

JAX is optional, and this module is loaded when it is first used.  Loading PyTensor's translation
sets JAX's ``jax_enable_x64`` to what PyTensor's ``floatX`` says, once: PyMC's own JAX samplers rely
on it, so it stays.  What we compute does not depend on it: see `in_double`.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor import get_mode
from pytensor.graph import FunctionGraph, Variable
from pytensor.graph.rewriting.basic import NodeRewriter, dfs_rewriter
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar import Erfcx, Log1mexp

_INLINING = 47.9  # after all rewrites that stabilise
_SERIES = 25.0  # from where on the asymptotic series of erfcx is as good
_LOG_HALF = -0.6931471805599453  # where the other formula is as good

_lock = RLock()


def _log1mexp(x: Any) -> Any:  # noqa: ANN401
    """Compute log(1 - exp(x)) for x <= 0."""
    return jnp.where(x < _LOG_HALF, jnp.log1p(-jnp.exp(x)), jnp.log(-jnp.expm1(x)))


def _slope_of_log1mexp(values: tuple[Any], changes: tuple[Any]) -> tuple[Any, Any]:
    # Close to 0, JAX's own derivative is NaN although the value is finite; at 0, where the value is
    # not, any will do, but NaN would spoil branches that are not taken.
    [x], [change] = values, changes
    below = jnp.where(x < 0, x, -1.0)
    return _log1mexp(x), jnp.where(x < 0, -1 / jnp.expm1(-below), 0.0) * change


_smooth_log1mexp: Any = jax.custom_jvp(_log1mexp)
_smooth_log1mexp.defjvp(_slope_of_log1mexp)


@jax_funcify.register(Log1mexp)
def _translated_log1mexp(op: Log1mexp, **_: Any) -> Any:  # noqa: ANN401, ARG001
    return _smooth_log1mexp


def _erfcx(x: Any) -> Any:  # noqa: ANN401
    """Compute exp(x^2) erfc(x), as JAX does since 0.11.

    Examples
    --------
    >>> with in_double():
    ...     _erfcx(jnp.array([-1.0, 1.0, 100.0])).tolist()
    [5.00898, 0.427584, 0.00564161]
    """
    near, far = jnp.minimum(x, _SERIES), jnp.maximum(x, _SERIES)
    product = 2 * jnp.exp(near**2 + jax.scipy.special.log_ndtr(-jnp.sqrt(2.0) * near))
    series = (1 - 0.5 / far**2 + 0.75 / far**4 - 1.875 / far**6) / (jnp.sqrt(jnp.pi) * far)
    return jnp.where(x < _SERIES, product, series)


@jax_funcify.register(Erfcx)
def _translated_erfcx(op: Erfcx, **_: Any) -> Any:  # noqa: ANN401, ARG001
    return getattr(jax.scipy.special, "erfcx", _erfcx)


def translated(
    inputs: Sequence[Variable[Any, Any]],
    outputs: Sequence[Variable[Any, Any]],
    inline: NodeRewriter,
) -> Callable[..., Sequence[Any]]:
    """Return a PyTensor graph as a function of JAX, which is not compiled yet.

    Assertions in the graph are left out.

    Parameters
    ----------
    inputs, outputs : sequence of Variable
        Their static shapes are those of the function.
    inline : NodeRewriter
        Replaces graphs inside of operations by their contents.

    Raises
    ------
    NotImplementedError
        If PyTensor has no translation of an operation, which the message names.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_coresets.reading.folding import inline_graphs
    >>> x = pt.vector("x", shape=(2,))
    >>> [found] = translated([x], [2 * x], inline_graphs)(jnp.ones(2))
    >>> found.tolist()
    [2.0, 2.0]
    """
    fgraph = FunctionGraph(list(inputs), list(outputs), clone=True)
    rewrites = get_mode("JAX").register((dfs_rewriter(inline), _INLINING)).optimizer
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Skipping .* Op", UserWarning)
        rewrites.rewrite(fgraph)
        function: Callable[..., Sequence[Any]] = jax_funcify(fgraph)
    return function


def in_double() -> AbstractContextManager[Any]:
    """Return a context in which this thread computes with 64 bits, whatever the configuration.

    Examples
    --------
    >>> with in_double():
    ...     jnp.ones(1).dtype
    dtype('float64')
    """
    context: AbstractContextManager[Any] = jax.enable_x64(True)  # noqa: FBT003 - as JAX has it
    return context


@contextmanager
def in_single() -> Iterator[None]:
    """Let JAX follow a function that has no numbers of 64 bits, whatever types it names.

    Matrix products have the full precision of 32 bits.

    Examples
    --------
    >>> with in_single():
    ...     jnp.ones(1, dtype="float64").dtype
    dtype('float32')
    """
    # The list of filters belongs to the process, and JAX follows functions in all threads.  GPUs
    # would round the factors of matrix products to 11 bits.
    with (
        _lock,
        warnings.catch_warnings(),
        jax.enable_x64(False),  # noqa: FBT003 - as JAX has it
        jax.default_matmul_precision("highest"),
    ):
        warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
        yield


def placed(array: np.ndarray) -> Any:  # noqa: ANN401
    """Return an array on the device; within `in_double` with the bits that it has.

    ``jnp.asarray`` compiles a conversion for each shape, even where there is none.

    Examples
    --------
    >>> with in_double():
    ...     placed(np.ones(1)).dtype
    dtype('float64')
    """
    return jax.device_put(array)


def device() -> Any:  # noqa: ANN401
    """Return the device that JAX computes on unless it is told otherwise."""
    chosen = jax.config.jax_default_device
    return jax.devices(chosen)[0] if chosen is None or isinstance(chosen, str) else chosen


def device_memory() -> int | None:
    """Return the bytes that JAX may use on that device; None where it does not say."""
    statistics: dict[str, int] = device().memory_stats() or {}
    return statistics.get("bytes_limit")
