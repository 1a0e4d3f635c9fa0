"""What the package needs of other libraries beyond their promises: each test says what broke."""

import ast
import gc
import re
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path
from textwrap import dedent

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import optdb
from pytensor.graph import Apply, Constant, RewriteDatabaseQuery, vectorize_graph
from scipy.special import logsumexp
from scipy.stats import genpareto

import pymc_coresets.compat
from pymc_coresets.compat import arviz_api, pymc_api, pytensor_api
from pymc_coresets.loops.rewrites import ENDLESS, OUT_OF_LOOPS, USELESS

FOLDER = Path(pymc_coresets.compat.__file__).parent
IMPORTS = [
    (node.module, alias)
    for path in sorted(FOLDER.parent.glob("*/*_api.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
]
PUBLIC = {"pymc", "pymc.step_methods", "pytensor", "pytensor.graph", "pytensor.scalar"}


@pytest.mark.parametrize(("module", "name"), [(module, alias.name) for module, alias in IMPORTS])
def test_name_is_still_there(module, name):
    assert hasattr(import_module(module), name), f"{module} has no {name} any more"


def test_private_names_of_pymc_and_pytensor_are_in_the_table():
    page = (FOLDER.parents[1] / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page.split("## Private names")[1], re.MULTILINE)
    stated = set(re.findall(r"`(\w+)`", "\n".join(rows)))
    private = {
        alias.asname or alias.name
        for module, alias in IMPORTS
        if module.split(".")[0] in {"pymc", "pytensor"} and module not in PUBLIC
    }
    attributes = {"_coords", "_dim_lengths", "jit_fn", "vm"}
    assert stated == private | attributes


# -- PyMC ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"obs": range(3)}) as model:
        x = pm.Data("x", [1.0, 2.0, 3.0], dims="obs")
        pm.Normal("y", pm.Normal("b") * x, pm.HalfNormal("s"), observed=np.ones(3), dims="obs")
    return model


def test_graph_of_a_model_has_operations_with_names_and_the_coords(model):
    fgraph, memo = pymc_api.fgraph_from_model(model)
    assert {v.owner.op.name for v in fgraph.outputs} == {"x", "b", "s", "y"}
    assert memo[model["b"]].owner.op.name == "b"
    coords, lengths = pymc_api.coords_of(fgraph)
    assert coords == {"obs": (0, 1, 2)}
    assert set(lengths) == {"obs"}
    assert pymc_api.model_from_fgraph(fgraph, mutate_fgraph=True).coords == {"obs": (0, 1, 2)}


def test_log_densities_end_in_a_check_whose_conditions_follow_the_value():
    logp = pm.logp(pm.Normal.dist(0.0, pt.dscalar("s")), pt.dvector("y"))
    checked = logp.owner
    assert isinstance(checked.op, pymc_api.CheckParameterValue)
    assert len(checked.inputs) == 2


def test_conditional_log_densities_are_elementwise(model):
    y, values = model["y"], dict(model.rvs_to_values)
    [logp] = pymc_api.transformed_conditional_logp(
        [y], rvs_to_values=values, rvs_to_transforms=dict.fromkeys(values), jacobian=False
    )
    assert logp.type.ndim == 1
    [replaced] = pymc_api.replace_rvs_by_values([model["b"]], rvs_to_values=values)
    assert replaced is values[model["b"]]


def test_points_are_raveled_and_back():
    point = {"a": np.array([1.0, 2.0]), "b": np.array(3.0)}
    raveled = pymc_api.DictToArrayBijection.map(point)
    moved = pymc_api.DictToArrayBijection.rmap(raveled._replace(data=raveled.data + 1))
    np.testing.assert_array_equal(moved["a"], [2.0, 3.0])
    assert moved["b"] == 4.0


def test_nuts_can_be_stepped_by_hand(model):
    step = pm.NUTS(model=model)
    assert {"potential", "integrator", "step_adapt"} <= set(dir(step))
    for method in ("reset", "setup_chain", "astep", "stop_tuning"):
        assert callable(getattr(step, method)), method
    metric = pymc_api.QuadPotentialDiagAdapt(2, np.zeros(2), np.ones(2), 10, rng=1)
    assert "rng" in signature(type(metric).__init__).parameters
    adaptation = pymc_api.DualAverageAdaptation(0.1, 0.8, 0.05, 0.75, 10)
    assert adaptation.current(tune=False) > 0


# -- PyTensor --------------------------------------------------------------------------------------


def test_a_function_in_numba_s_mode_has_the_compiled_one_in_it():
    x = pt.dvector("x")
    function = pytensor.function([x], [2 * x], mode="NUMBA", trust_input=True)
    [doubled] = pytensor_api.unwrapped(function)(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(doubled, [2.0, 4.0])


@pytest.mark.parametrize("name", [*USELESS, *OUT_OF_LOOPS, *ENDLESS])
def test_rewrites_that_are_left_out_exist(name):
    assert _rewrites() - _rewrites(name) == {name}


def _rewrites(*excluded: str) -> set[str]:
    """Return the names of PyTensor's rewrites of single operations."""
    sequence = optdb.query(RewriteDatabaseQuery(include=["fast_run"], exclude=excluded))
    repeated = [step for step in sequence.data if hasattr(step, "get_node_rewriters")]
    return {str(rewriter) for step in repeated for rewriter in step.get_node_rewriters()}


def test_rewrites_are_looked_up_once_for_many_graphs_and_not_kept_for_ever():
    held = pytensor_api.HeldRewrites(iter(range(3)).__next__)
    assert [held.rewriter for _ in range(201)] == [0] * 100 + [1] * 100 + [2]


def test_modes_look_their_own_rewrites_up_once():
    written = pytensor_api.HeldMode("py", "None")
    folded = written.including("canonicalize")
    assert written.optimizer is written.optimizer is not folded.optimizer
    x = pt.dvector("x")
    for mode, n_operations in ((written, 1), (folded, 0)):
        for y in (x * 1, x * 1):
            function = pytensor.function([x], y, mode=mode)
            assert sum(_scales(node) for node in function.maker.fgraph.apply_nodes) == n_operations


def _scales(node: Apply) -> bool:
    return isinstance(pytensor_api.scalar_op_of(node.outputs[0]), ps.Mul)


def test_indices_can_be_read_back_from_an_operation():
    x = pt.dmatrix("x")
    node = x[1:, 0].owner
    assert isinstance(node, Apply)
    rows, column = pytensor_api.unflatten_index_variables(node.inputs[1:], node.op.idx_list)
    assert (rows.start.data, rows.stop, rows.step) == (1, None, None)
    assert isinstance(column, Constant)
    assert column.data == 0


def test_operations_say_along_which_axis_they_work():
    x = pt.dmatrix("x")
    assert pt.sum(x, axis=1).owner.op.axis == (1,)
    assert x.T.owner.op.new_order == (1, 0)
    assert pt.concatenate([x, x], axis=1).owner.op.axis % 2 == 1
    assert pt.special.softmax(x, axis=1).owner.op.axis == (1,)


def test_graphs_are_vectorised_over_new_leading_axes():
    b, draws = pt.dvector("b", shape=(3,)), pt.dmatrix("draws", shape=(None, 3))
    graph = vectorize_graph(b.sum(), {b: draws})
    assert graph.type.ndim == 1


# -- ArviZ -----------------------------------------------------------------------------------------


def test_importance_weights_are_smoothed_from_minus_the_log_ratios():
    ratios = genpareto.rvs(0.5, size=4_000, random_state=1)
    log_weights, khat = arviz_api.array_stats.psislw(-np.log(ratios), r_eff=1.0)
    assert logsumexp(log_weights) == pytest.approx(0.0, abs=1e-9)
    # The estimate from a tail of 190 draws has a standard error of about 0.1.
    assert abs(khat - 0.5) < 0.5
    assert np.corrcoef(log_weights, np.log(ratios))[0, 1] > 0.99


def test_effective_sizes_and_errors_of_means_on_arrays():
    draws = np.random.default_rng(1).normal(size=(4, 500))
    assert 1_000 < arviz_api.array_stats.ess(draws, method="mean") < 4_000
    error = arviz_api.array_stats.mcse(draws, method="mean")
    assert error == pytest.approx(2_000**-0.5, rel=0.3)


def test_numbers_of_numpy_do_not_load_jax():
    """ArviZ leaves a module in its place that is loaded when SciPy asks for its arrays."""
    pytest.importorskip("jax", reason="needs the extra 'jax'")
    code = """
        import sys
        import arviz_base
        import numpy as np
        from pymc_coresets.diagnostics.importance import pareto_smooth
        assert "jax" in sys.modules  # what the others are about
        left = sys.modules["jax"]
        pareto_smooth(np.random.default_rng(1).normal(size=(2, 200)))
        assert sys.modules["jax"] is left
        assert "jaxlib" not in sys.modules
    """
    found = subprocess.run([sys.executable, "-c", dedent(code)], check=False, timeout=60)
    assert found.returncode == 0


def test_importing_the_package_changes_nothing_for_others():
    """Its rules are for operations of its own: PyTensor's keep theirs."""
    script = """
    import pymc, pymc.dims  # which have rules of their own
    from pytensor.graph.replace import _vectorize_node
    from pytensor.link.numba.dispatch import basic, scalar
    import pytensor.compile.mode as mode

    def known():
        every = [f for m in (basic, scalar) for f in vars(m).values()]
        registries = [f for f in every if hasattr(f, "registry")]
        rules = {id(f): dict(f.registry) for f in [_vectorize_node, *registries]}
        return rules, dict(mode.predefined_modes), dict(mode.predefined_linkers)

    before = known()
    import pymc_coresets
    for name in pymc_coresets.__all__:
        getattr(pymc_coresets, name)
    import pymc_coresets.rowlogp.evaluation, pymc_coresets.reading.units.ragged
    after = known()
    assert after[1:] == before[1:]
    for number, rules in before[0].items():
        new = after[0][number].keys() - rules.keys()
        assert not [t for t in new if not t.__module__.startswith("pymc_coresets")], new
        assert all(after[0][number][t] is f for t, f in rules.items())
    assert any(after[0][n].keys() - rules.keys() for n, rules in before[0].items())
    """
    subprocess.run([sys.executable, "-c", dedent(script)], check=True, timeout=300)


@pytest.mark.parametrize("enabled", [True, False])
def test_names_are_loaded_without_the_collector_which_is_left_as_it_was(enabled, monkeypatch):
    seen = []
    monkeypatch.setattr(pymc_coresets, "_loaded", lambda _: seen.append(gc.isenabled()))
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        pymc_coresets.__getattr__("sample")
        monkeypatch.undo()
        with pytest.raises(AttributeError):
            pymc_coresets.__getattr__("unknown")
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
    assert seen == [False]
