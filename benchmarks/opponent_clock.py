"""How long compilers took: PyTensor's rewriting and linking, Numba's compilation, JAX's."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from numba.core import event
from pytensor.compile.maker import FunctionMaker

__all__ = ["CompilationClock"]


class CompilationClock(event.Listener):
    """Counts wall seconds while the calling thread compiles, in whatever library.

    Compilers call one another; a second counts once.  As a context manager it listens; within
    ``compiling()`` everything counts.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._began = 0, 0.0
        self._thread = threading.get_ident()
        self._exits = ExitStack()

    def __enter__(self) -> "CompilationClock":
        self._exits.enter_context(event.install_listener("numba:compile", self))
        for name in ("__init__", "create"):
            self._exits.enter_context(self._replaced(name))
        return self

    def __exit__(self, *failure: object) -> None:
        self._exits.close()

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Count all that happens in here."""
        self._start()
        try:
            yield
        finally:
            self._stop()

    def listen_to_jax(self) -> None:
        """Count JAX's compilations, too, which it reports itself."""
        monitoring = sys.modules["jax"].monitoring

        def add(name: str, seconds: float, **_: object) -> None:
            if name.startswith("/jax/core/compile/"):
                self.seconds += seconds

        monitoring.register_event_duration_secs_listener(add)

    def on_start(self, event: Any) -> None:  # noqa: ANN401, ARG002
        self._start()

    def on_end(self, event: Any) -> None:  # noqa: ANN401, ARG002
        self._stop()

    def _start(self) -> None:
        if threading.get_ident() != self._thread:
            return
        if not self._depth:
            self._began = time.perf_counter()
        self._depth += 1

    def _stop(self) -> None:
        if threading.get_ident() != self._thread:
            return
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._began

    @contextmanager
    def _replaced(self, name: str) -> Iterator[None]:
        """Let a method of PyTensor's compiler report to this clock."""
        original: Callable[..., Any] = getattr(FunctionMaker, name)

        def timed(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            with self.compiling():
                return original(*arguments, **options)

        setattr(FunctionMaker, name, timed)
        try:
            yield
        finally:
            setattr(FunctionMaker, name, original)
