"""Models of the zoo whose arrays are data containers, so that their rows may lie elsewhere."""

from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph import FunctionGraph, Variable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs, io_toposort

from pymc_coresets.compat.pymc_api import (
    coords_of,
    fgraph_from_model,
    model_named,
    set_coords,
)
from pymc_coresets.compat.pytensor_api import SymbolicOp
from pymc_coresets.reading.selection_rules import rebuild
from pymc_coresets.reading.user_model import converted_back, convertible
from tests.models.zoo import N

__all__ = ["in_containers"]


def in_containers(model: pm.Model) -> pm.Model:
    """Copy a model whose arrays of N rows become data containers without labels."""
    fgraph, _ = fgraph_from_model(convertible(model))
    inputs = sorted(graph_inputs(fgraph.outputs), key=lambda v: str(v.type))
    values = {v: np.asarray(v.data) for v in inputs if isinstance(v, Constant)}
    columns = {
        v: pytensor.shared(value, name=f"column_{i}", shape=(None, *value.shape[1:]))
        for i, (v, value) in enumerate(values.items())
        if value.ndim and len(value) == N
    }
    containers = [v for v in inputs if v.name in model.named_vars and v.type.ndim]
    n_rows = next(iter([*columns.values(), *containers])).shape[0]
    lengths = {
        v: pt.as_tensor([n_rows if n == N else n for n in value]) if value.ndim else n_rows
        for v, value in values.items()
        if v not in columns and value.dtype.kind == "i" and value.ndim < 2 and N in value
    }
    coords, dims = coords_of(fgraph)
    obs = {v: n_rows for n, v in dims.items() if len(coords[n] or ()) == N}
    outputs = made_anew(fgraph.outputs, columns | lengths | obs)
    outputs += [model_named(v, v.name) for v in columns.values()]
    rows = FunctionGraph(outputs=outputs, clone=False)
    coords = {n: None if len(v or ()) == N else v for n, v in coords.items()}
    set_coords(rows, coords, {n: obs.get(v, v) for n, v in dims.items()})
    return converted_back(model, rows)


def made_anew(outputs: Sequence[Variable], known: Mapping[Variable, Variable]) -> list[Variable]:
    """Apply all operations again to other inputs, of which no shape is known."""
    known = dict(known)
    for node in io_toposort([], outputs):
        inputs = [known.get(v, v) for v in node.inputs]
        if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
            continue
        if isinstance(node.op, SymbolicOp):
            found = rebuild(node.op, node, inputs, {})
        else:
            found = node.op.make_node(*inputs).outputs
        known |= {v: w for v, w in zip(node.outputs, found, strict=True) if v not in known}
    return [known.get(v, v) for v in outputs]
