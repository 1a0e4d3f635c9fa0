"""The source of a random model in the making: its data, its variables, its options."""

from collections import Counter
from typing import Any

import numpy as np

__all__ = ["Program"]


class Program:
    """A model as Python source, which `tests.grammar.judging` executes.

    Parameters
    ----------
    rng : numpy.random.Generator
        Makes all choices.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.n_rows = int(rng.integers(5, 61))
        self.dims = self.chance(0.4)  # the rows have a dimension
        self.containers = self.chance(0.4)
        self.groups: list[tuple[str, int]] = []  # columns of codes, and how many there are
        self.options: dict[str, Any] = {}
        self._before, self._inside = [], []
        self._names: Counter[str] = Counter()
        self._seed = int(rng.integers(1_000_000))

    # -- choices -------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick[T](self, *choices: T) -> T:
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def name(self, stem: str) -> str:
        self._names[stem] += 1
        count = self._names[stem]
        return stem if count == 1 else f"{stem}{count}"

    # -- statements ----------------------------------------------------------------------------

    def data(self, stem: str, values: str) -> str:
        """Assign something of NumPy before the model, and return its name."""
        name = self.name(stem)
        self._before.append(f"{name} = {values}")
        return name

    def column(self, stem: str, values: str, *, axes: int = 1) -> str:
        """Assign an array whose first axis is that of the rows; it may go into a container."""
        array = self.data(stem, values)
        if not self.containers or self.chance(0.3):
            return array
        others = ", None" * (axes - 1)
        dims = f", dims=('obs'{others or ','})" if self.dims and self.chance(0.7) else ""
        name = self.name(f"{array}_data")
        return self.let(name, f"pm.Data({name!r}, {array}{dims})")

    def let(self, name: str, expression: str) -> str:
        """Assign something in the model, and return its name."""
        self._inside.append(f"{name} = {expression}")
        return name

    def do(self, statement: str) -> None:
        self._inside.append(statement)

    def free(self, stem: str, distribution: str, arguments: str) -> str:
        """Add a free variable, and return its name."""
        name = self.name(stem)
        return self.let(name, f"pm.{distribution}({name!r}, {arguments})")

    def of_rows(self, stem: str, expression: str) -> str:
        """Assign something with one entry per row; it may become a deterministic."""
        name = self.name(stem)
        if self.chance(0.3):
            dims = ", dims='obs'" if self.dims and self.chance(0.7) else ""
            # What is one number so far gets its axis here.
            expression = f"pm.Deterministic({name!r}, {expression} + np.zeros(N){dims})"
        return self.let(name, expression)

    def row_dims(self, *others: str | None, first: str | None = None) -> str:
        """Return ``, dims=...`` of an observed variable."""
        if not self.dims:
            return ""
        names = [*([first] if first else []), "obs", *others]
        if None in names:
            return ""
        return f", dims={tuple(names)!r}" if len(names) > 1 else f", dims={names[0]!r}"

    def source(self) -> str:
        coords = "coords={'obs': range(N), 'k': range(2)}" if self.dims else ""
        lines = [f"rng = np.random.default_rng({self._seed})", f"N = {self.n_rows}", *self._before]
        lines += [f"with pm.Model({coords}) as model:", *(f"    {line}" for line in self._inside)]
        return "\n".join([*lines, f"options = {self.options!r}"])
