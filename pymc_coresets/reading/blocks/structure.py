"""Find the blocks of a hierarchical model: what belongs to one level, and what all levels share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.reading.blocks.factors import (
    MOST_SHARED,
    Factoring,
    Part,
    as_factors,
    best_factoring,
    factoring,
)
from pymc_coresets.reading.blocks.independence import dependence_between
from pymc_coresets.reading.blocks.parting import LevelPrior, Linked, Parting
from pymc_coresets.reading.blocks.row_uses import RowUses, Use
from pymc_coresets.reading.graphs import unconstrained_graphs
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import UNNAMED
from pymc_coresets.rows.values import Rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Blocks:
    """Levels whose own variables are independent of other levels', given those that all share.

    Each row depends on the variables of one level, besides the shared ones, and the prior density
    is a product over levels.

    Attributes
    ----------
    n_blocks : int
        Number of levels G.  If rows of some kind depend on shared variables only, as for a
        reference level, they are in one more block, the last, without coordinates.
    levels : str
        What the levels are called: the name of a dimension, of an index, or of a variable.
    local : mapping of str to (int or None)
        Each free variable that belongs to levels, and the axis of it that runs over them, or over
        levels nested in them; None where several axes do.
    shared : tuple of str
        The other free variables.
    block_of : callable
        Returns the level of each of some rows, (n_rows,) of int64, from the rows' own data.
    local_columns : tuple of ndarray of int64
        For each level the positions of its coordinates in the unconstrained vector, in the order of
        `Unconstrained`.  Levels may have different numbers of coordinates, as towns with shops do.
    shared_columns : ndarray of int64
        Positions of the shared coordinates, (p,).
    prior : LevelPrior
        The log-density besides that of the rows, as a sum over levels.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     effect = pm.Normal("effect", pm.Normal("mean"), shape=2)
    ...     y = pm.Normal("y", effect[[0, 1, 1]], 1.0, observed=np.arange(3.0))
    >>> blocks = find_blocks(find_observations(model))
    >>> blocks.n_blocks, blocks.local, blocks.shared
    (2, {'effect': 0}, ('mean',))
    """

    n_blocks: int
    levels: str
    local: Mapping[str, int | None]
    shared: tuple[str, ...]
    block_of: Callable[[Rows], NDArray[np.int64]]
    local_columns: tuple[NDArray[np.int64], ...]
    shared_columns: NDArray[np.int64]
    prior: LevelPrior

    def __repr__(self) -> str:
        shared = ", ".join(self.shared) or "nothing"
        return (
            f"Blocks: {self.n_blocks:,} levels of {self.levels!r}; local: {', '.join(self.local)}; "
            f"shared: {shared}"
        )


@dataclass(frozen=True)
class NoBlocks:
    """Why a model has no blocks, and what can be done.

    Attributes
    ----------
    reason : str

    Examples
    --------
    >>> NoBlocks("each row depends on several levels.")
    No blocks: each row depends on several levels.
    """

    reason: str

    def __repr__(self) -> str:
        return f"No blocks: {self.reason}"


@dataclass(frozen=True, eq=False)
class BlockLookup:
    """Says which block rows belong to, by what they look up.

    Attributes
    ----------
    uses : RowUses
    tables : tuple of (Use, ndarray)
        Shared arrays, and the block of each of their entries, or -1.
    n_blocks : int
        Rows that use entries without a block only are in the last one.
    """

    uses: RowUses
    tables: tuple[tuple[Use, NDArray[np.int64]], ...]
    n_blocks: int

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        """Return the block of each row."""
        codes = self.uses.codes(rows, [use.lookup for use, _ in self.tables if use.lookup])
        found = np.full(len(rows), -1)
        for use, blocks in self.tables:
            entries = self.uses.entries(use, codes)
            if entries is not None:
                found = np.maximum(found, blocks[entries].max(axis=1))
        return np.where(found < 0, self.n_blocks - 1, found)


def find_blocks(observations: Observations) -> Blocks | NoBlocks:
    """Find the levels that a model's rows and variables belong to.

    The graph of the log-density is followed coordinate by coordinate: two coordinates belong
    together if the potential of any row, or any term of the prior, depends on both.  The variables
    that are shared are chosen such that the others fall into blocks, and the log-density has as few
    products of coordinates as possible.  The result is checked numerically at two points.

    Costs a few passes over the index arrays, and about a second for each ten free variables.

    Parameters
    ----------
    observations : Observations

    Returns
    -------
    Blocks or NoBlocks

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model(coords={"town": ["Bern", "Oslo", "Rome"]}) as model:
    ...     mean, sd = pm.Normal("mean"), pm.HalfNormal("sd")
    ...     effect = pm.Normal("effect", mean, sd, dims="town")
    ...     town = np.array([0, 1, 1, 2])
    ...     y = pm.Normal("y", effect[town], 1.0, observed=np.arange(4.0))
    >>> find_blocks(find_observations(model))
    Blocks: 3 levels of 'town'; local: effect; shared: mean, sd
    """
    if observations.local:
        return NoBlocks(
            f"The free variables {list(observations.local)!r} have one value per row. Marginalise "
            "them, or keep the default method."
        )
    if observations.sets:
        return NoBlocks(
            "the likelihood has terms with rows of their own, and blocks of those are not looked "
            "for. Keep the default method."
        )
    names = [term.name for term in observations.terms]
    parting = Parting(observations, unconstrained_graphs(observations.model, names))
    inputs = parting.graphs.inputs
    several = [name for name, v in inputs.items() if np.prod(v.type.shape, dtype=int) > 1]
    found = [parting.part(name) for name in several]
    parts = [part for part in found if isinstance(part, Part)]
    factors = [factor for factor in as_factors(parts) if _matters(factor, parts)]
    n_dims = sum(int(np.prod(v.type.shape, dtype=int)) for v in inputs.values())
    chosen = best_factoring(factors, n_dims)
    if chosen is None:
        linked = [part for part in found if isinstance(part, Linked)]
        return NoBlocks(_why_none(factors, linked, n_dims))
    blocks = _blocks(chosen, parting)
    wrong = dependence_between(blocks.local_columns, parting, blocks.block_of)
    return blocks if wrong is None else NoBlocks(wrong)


def _matters(factor: Sequence[Part], parts: Sequence[Part]) -> bool:
    """Whether the rows depend on the variables of a factor, or the prior of others does."""
    others = [part for part in parts if part not in factor]
    return any(
        np.any(part.in_rows >= 0) or any(part.meets(other).size for other in others)
        for part in factor
    )


def _blocks(chosen: Factoring, parting: Parting) -> Blocks:
    columns = {n: own.ravel() for n, own in parting.observations.space.columns.items()}
    parts = {part.name: blocks for part, blocks in zip(chosen.parts, chosen.block_of, strict=True)}
    owner = np.full(sum(len(c) for c in columns.values()), -1)
    for part in chosen.parts:
        owner[columns[part.name]] = parts[part.name][part.components]
    n_blocks = chosen.n_blocks + bool(
        np.any(chosen.blocks_of([p.in_rows for p in chosen.parts]) < 0)
    )
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(n_blocks + 1))
    local = {part.name: _axis(part, parts[part.name], parting) for part in chosen.parts}
    return Blocks(
        n_blocks=n_blocks,
        levels=_name_of_levels(chosen, local, parting),
        local={name: local[name] for name in columns if name in local},
        shared=tuple(name for name in columns if name not in local),
        block_of=BlockLookup(parting.uses, _tables(chosen, parting), n_blocks),
        local_columns=tuple(order[a:b] for a, b in pairwise(ends)),
        shared_columns=order[: ends[0]],
        prior=LevelPrior(parting, chosen),
    )


def _axis(part: Part, blocks: NDArray[np.int64], parting: Parting) -> int | None:
    """Return the only axis of a variable along which the block changes."""
    own = blocks[part.components].reshape(parting.graphs.inputs[part.name].type.shape)
    varying = [i for i in range(own.ndim) if np.any(own != np.take(own, [0], axis=i))]
    return varying[0] if len(varying) == 1 else None


def _name_of_levels(chosen: Factoring, local: Mapping[str, int | None], parting: Parting) -> str:
    """Return the name of a dimension, or of an index, or of a variable."""
    all_dims = parting.observations.model.named_vars_to_dims
    outermost = [p for p in chosen.parts if p.n_components == chosen.parts[0].n_components]
    outermost.sort(key=lambda part: not np.any(part.in_rows >= 0))  # what rows look up comes first
    for part in outermost:
        dims, axis = all_dims.get(part.name), local[part.name]
        if dims and axis is not None and dims[axis] is not None:
            return str(dims[axis])
    for part in outermost:
        for use, labels in zip(parting.uses.uses, part.in_tables, strict=True):
            names = parting.uses.columns(use.lookup) if labels.size and use.lookup else []
            if names and names[0] != UNNAMED:
                return names[0]
    return outermost[0].name


def _tables(chosen: Factoring, parting: Parting) -> tuple[tuple[Use, NDArray[np.int64]], ...]:
    """Return the fewest lookups that say which block a row belongs to."""
    found = []
    for i, use in enumerate(parting.uses.uses):
        blocks = chosen.blocks_of([part.in_tables[i] for part in chosen.parts])
        if use.lookup is not None and np.all(blocks >= 0):
            return ((use, blocks),)
        if np.any(blocks >= 0):
            found.append((use, blocks))
    return tuple(found)


# -- why there are none ----------------------------------------------------------------------------


def _why_none(factors: Sequence[Sequence[Part]], linked: Sequence[Linked], n_dims: int) -> str:
    advice = "Keep the default method, which needs no blocks."
    looked_up = [part for part in linked if part.looked_up]
    if not factors and looked_up:
        part = looked_up[0]
        return (
            f"the levels of {part.name!r} are not independent given the other variables: "
            f"{part.why}. Give each level a prior of its own, given shared variables (a Normal, "
            f"centred or not; an MvNormal for each level). {advice}"
        )
    if not factors:
        return (
            "no free variable has entries of its own for each level of an index that rows have, as "
            f"effects[group] has. {advice}"
        )
    found = sorted((factoring(f) for f in factors), key=lambda f: -f.n_blocks)
    large = [f for f in found if int(f.sizes.sum()) > MOST_SHARED // 2]
    if len(large) > 1:
        one, other = large[:2]
        return (
            f"{_named(one)} and {_named(other)} are crossed, and both are large: the divergence of "
            f"a coreset of M rows is about {one.n_blocks * other.n_blocks:,} / M nats or more. "
            f"At most {MOST_SHARED} coordinates can be shared by all blocks: give one factor fewer "
            "levels or a known effect, nest it in the other one, or keep all rows."
        )
    shared = found[0].n_shared(n_dims)
    if shared > MOST_SHARED:
        return (
            f"the blocks of {_named(found[0])} would share {shared:,} coordinates, and at most "
            f"{MOST_SHARED} are possible. Give the model fewer shared coefficients. {advice}"
        )
    return (
        f"most levels of {_named(found[0])} hang together, because rows or the prior depend on "
        f"several of them. {advice}"
    )


def _named(found: Factoring) -> str:
    names = " and ".join(repr(part.name) for part in found.parts[:3])
    return f"{names} ({found.n_blocks:,} levels)"
