"""Which tests answer for which module, the fastest first."""

APPROXIMATIONS = "tests/statistical/test_approximations.py"
UPDATES = "tests/statistical/test_updates.py"
CONTROL_VARIATES = "tests/statistical/test_control_variates.py"
SEVERAL_PREDICTORS = "tests/models/test_several_predictors.py"
CONTRACT = "tests/properties/test_algorithm_contract.py"
ERRORS = "tests/models/test_errors.py"
MODELS = "tests/models/test_coreset_model.py"
LINEAR = "tests/models/test_glm.py"
BUILD = "tests/statistical/test_build.py"
PASS_GLM = "tests/statistical/test_pass_glm.py"
GROUPS = "tests/models/test_groups.py"
SAMPLER = "tests/statistical/test_sampler.py"
SENSITIVITY = "tests/statistical/test_sensitivity.py"
APPROXIMATE = "tests/statistical/test_approximate_posterior.py"
OBSERVATIONS = "tests/models/test_observations.py"
RESULTS = "tests/models/test_results.py"
ROWS_ELSEWHERE = "tests/statistical/test_rows_elsewhere.py"
STREAMS = "tests/statistical/test_streams.py"
UNITS = "tests/models/test_units.py"
MODES_OF_UNITS = "tests/models/test_modes_of_units.py"
WALKS_OF_UNITS = "tests/models/test_walks_of_units.py"
RECOVERY = "tests/statistical/test_recovery.py"
UNITS_OF_CORESETS = "tests/statistical/test_units_of_coresets.py"
GROWN_UNITS = "tests/statistical/test_units_that_grow.py"
VERIFICATION = "tests/models/test_verification.py"
ROW_SOURCES = "tests/rows/test_row_sources.py"
SOURCE_ERRORS = "tests/rows/test_source_errors.py"
CLUSTER_SOURCES = "tests/rows/test_cluster_sources.py"
DAMAGED_FILES = "tests/rows/test_damaged_files.py"
ENGINES = "tests/rows/test_engines.py"
PASS_OF_ROWS = "tests/rows/test_pass_of_rows.py"
SENSITIVITY_OF_ROWS = "tests/rows/test_sensitivity_of_rows.py"
MEMORY_AND_CHUNKS = "tests/rows/test_memory_and_chunks.py"


FUSED_LOOPS = "tests/loops/test_fused_loops.py"
VECTORMATH = "tests/loops/test_vectormath.py"


def unit(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/test_{name}.py" for name in names)


#: A module belongs to the longest of these that its path starts with.
TESTS = {
    "": (BUILD,),
    "advice": (*unit("advice"), BUILD),
    "one_call": unit("one_call"),
    "numerics": (*unit("proposal", "display"), BUILD),
    "deadline": (*unit("display"), BUILD),
    "coreset": (APPROXIMATE, *unit("storage"), BUILD, ROWS_ELSEWHERE),
    "ancestry": (UPDATES, CONTROL_VARIATES),
    "storage": unit("storage"),
    "weighted_rows": (APPROXIMATE, *unit("storage"), RESULTS, SAMPLER),
    "options": unit("advice"),
    "progress": (*unit("display"), PASS_GLM, BUILD),
    "compat/": (*unit("compat"), VECTORMATH, SAMPLER),
    "papers/pass_glm": (PASS_GLM, PASS_OF_ROWS),
    "display": (*unit("display", "diagnostics_datatree"), RESULTS),
    "results/": (*unit("advice", "report"), RESULTS),
    "after/": ("tests/models/test_predict.py", *unit("advice", "loo")),
    "after/summary": (*unit("advice"), RESULTS),
    "after/plots": unit("diagnostics_plots"),
    "request": (BUILD, GROUPS),
    "optional": ("tests/test_architecture.py",),
    "papers/": (*unit("sensitivity"), BUILD),
    "exceptions": (*unit("warnings", "advice"), ERRORS),
    "rows/": unit("passes", "tangent_space"),
    "rows/values": unit("passes", "tangent_space"),
    "rows/keyed": (*unit("passes", "units_given_the_rest"), MEMORY_AND_CHUNKS, ENGINES),
    "rows/proportional": (*unit("passes", "sensitivity"), STREAMS, ENGINES),
    "rows/executors": (ENGINES,),
    "rows/memory": (*unit("passes", "tangent_space"), ROWS_ELSEWHERE, ENGINES),
    "rows/streamed": (*unit("passes"), MEMORY_AND_CHUNKS, ENGINES, UPDATES),
    "rows/first_reading": (SOURCE_ERRORS, ROW_SOURCES, *unit("passes")),
    "rows/sources/": (ROW_SOURCES, SOURCE_ERRORS, DAMAGED_FILES),
    "rows/sources/finders": (ROW_SOURCES, SOURCE_ERRORS, CLUSTER_SOURCES),
    "rows/sources/readers": (
        ROW_SOURCES,
        SOURCE_ERRORS,
        DAMAGED_FILES,
        "tests/rows/test_kinds_of_columns.py",
    ),
    "compat/dask_api": (ENGINES,),
    "compat/pyarrow_api": (ROW_SOURCES,),
    "compat/xarray_api": (ENGINES,),
    "reading/": (*unit("pushdown"), ERRORS, MODELS),
    "reading/likelihood/prototypes": (
        "tests/models/test_prototype_refusals.py",
        ROWS_ELSEWHERE,
        ERRORS,
    ),
    "reading/long_format": (
        *unit("folding", "pushdown"),
        "tests/models/test_cells.py",
        MODELS,
    ),
    "reading/other_forms": (
        *unit("folding", "pushdown"),
        "tests/models/test_cells.py",
        MODELS,
    ),
    "reading/draws": unit("densities"),
    "reading/likelihood/": (OBSERVATIONS, ERRORS, "tests/models/test_several_terms.py"),
    "reading/likelihood/layouts": ("tests/models/test_cells.py", OBSERVATIONS, ERRORS),
    "reading/likelihood/joined_columns": unit("pushdown"),
    "reading/likelihood/refusals": (ERRORS, "tests/models/test_jumps.py", OBSERVATIONS),
    "reading/likelihood/row_terms": (*unit("pushdown"), OBSERVATIONS, ERRORS, MODELS),
    "reading/observations": (OBSERVATIONS, ERRORS, MODELS),
    "reading/selection_rules": (
        *unit("pushdown"),
        "tests/models/test_rows_of_zoo.py",
        "tests/models/test_recursions.py",
        ERRORS,
        MODELS,
    ),
    "reading/user_model": (
        *unit("held_models"),
        OBSERVATIONS,
        "tests/models/test_changed_data.py",
        ROWS_ELSEWHERE,
        ERRORS,
    ),
    "reading/unconstrained": (*unit("densities", "weighting"), SAMPLER),
    "reading/quadratic": unit("control_variates", "factors"),
    "reading/units/": (UNITS, UNITS_OF_CORESETS),
    "reading/units/each_column": (*unit("graphs_of_units"), UNITS),
    "reading/units/placement": (*unit("placement"), MODES_OF_UNITS, UNITS),
    "reading/units/bending": (*unit("placement"),),
    "reading/units/complements": (*unit("graphs_of_units"),),
    "reading/units/fewer_functions": (*unit("graphs_of_units"),),
    "reading/units/varying": (*unit("graphs_of_units"),),
    "reading/units/nodes": (UNITS, MODES_OF_UNITS),
    "reading/units/labels": (GROWN_UNITS,),
    "reading/units/joined_units": (*unit("placement"), GROWN_UNITS),
    "reading/units/factors": ("tests/models/test_missing_covariates.py", UNITS, UNITS_OF_CORESETS),
    "reading/units/integral": ("tests/models/test_values_of_units.py", UNITS),
    "reading/units/ragged": (*unit("graphs_of_units"), UNITS),
    "reading/rewrite": (ERRORS, MODELS, "tests/models/test_inference.py"),
    "rowlogp/": (ERRORS, MODELS, BUILD),
    "loops/": (FUSED_LOOPS, VECTORMATH, *unit("folding")),
    "loops/fused_loops": (FUSED_LOOPS, ENGINES, MODELS),
    "loops/rewrites": (FUSED_LOOPS, *unit("pushdown", "folding")),
    "loops/taken_apart": ("tests/loops/test_direct_calls.py", FUSED_LOOPS),
    "loops/segments": ("tests/loops/test_direct_calls.py",),
    "loops/batches": ("tests/loops/test_direct_calls.py", FUSED_LOOPS),
    "loops/direct_calls": ("tests/loops/test_direct_calls.py", FUSED_LOOPS),
    "rowlogp/unit_modes": (MODES_OF_UNITS, UNITS),
    "rowlogp/units": (UNITS, WALKS_OF_UNITS, UNITS_OF_CORESETS),
    "loops/vectormath": (VECTORMATH, MODELS),
    "rowlogp/filled_model": ("tests/rows/test_units_of_rows.py",),
    "rowlogp/known_rows": (UPDATES, STREAMS),
    "rowlogp/kept_rows": (ROWS_ELSEWHERE, *unit("storage"), UPDATES, STREAMS),
    "rowlogp/of_model": (
        "tests/models/test_prototype_refusals.py",
        ROWS_ELSEWHERE,
        BUILD,
        APPROXIMATIONS,
    ),
    "rowlogp/log_concavity": unit("densities"),
    "rowlogp/functions": unit("densities"),
    "rowlogp/rest": (APPROXIMATIONS, PASS_GLM),
    "rowlogp/verification": (VERIFICATION, ERRORS),
    "rowlogp/verification_of_units": (
        VERIFICATION,
        UNITS,
        WALKS_OF_UNITS,
        "tests/models/test_missing_covariates.py",
    ),
    "diagnostics/": unit("diagnostics_comparison", "diagnostics_datatree", "importance"),
    "diagnostics/__init__": unit("diagnostics_plots"),
    "diagnostics/comparison": unit("diagnostics_comparison", "diagnostics_plots"),
    "diagnostics/posterior_draws": unit("stein", "diagnostics_datatree"),
    "diagnostics/evaluated_draws": unit("importance", "diagnostics_datatree"),
    "diagnostics/judging": unit("diagnostics_datatree", "modes"),
    "diagnostics/verdicts": unit("diagnostics_datatree", "display"),
    "diagnostics/known_posterior": unit("importance", "modes", "symmetries"),
    "diagnostics/lines": unit("lines"),
    "diagnostics/separate_parts": unit("lines"),
    "diagnostics/stein": unit("stein", "lines"),
    "diagnostics/stein_of_units": (*unit("stein"), RECOVERY),
    "diagnostics/short_chains": unit("many_chains"),
    "diagnostics/importance": unit("importance", "diagnostics_datatree"),
    "growth/streams": (STREAMS,),
    "growth/epochs": (STREAMS,),
    "growth/coverage": (STREAMS, UPDATES, CONTROL_VARIATES),
    "growth/": (UPDATES,),
    "growth/new_units": (GROWN_UNITS,),
    "growth/reductions": (UPDATES, STREAMS, CONTROL_VARIATES),
    "sampling/": (*unit("weighting", "proposal"), SAMPLER),
    "sampling/weighting": (*unit("options_of_methods", "weighting", "proposal"), SAMPLER),
    "sampling/accuracy": (APPROXIMATIONS,),
    "sampling/steps/near_normal": unit("normal_steps"),
    "sampling/steps/split_hmc": unit("normal_steps"),
    "sampling/units/staying_nodes": unit("units_given_the_rest"),
    "sampling/steps/many_chains": unit("many_chains"),
    "sampling/steps/starts": unit("independent_proposals", "many_chains"),
    "sampling/steps/playback": unit("independent_proposals", "many_chains"),
    "sampling/steps/one_point": (
        *unit("densities", "independent_proposals", "factors"),
        SAMPLER,
        CONTROL_VARIATES,
    ),
    "sampling/steps/nuts": (
        *unit("advice", "independent_proposals", "factors", "levels"),
        SAMPLER,
    ),
    "sampling/steps/metropolis": unit("independent_proposals"),
    "sampling/normal": (*unit("proposal", "modes", "factors"), SAMPLER),
    "sampling/curvature": unit("proposal", "factors", "weighting"),
    "sampling/maximisation/central_differences": unit("modes", "proposal", "factors"),
    "sampling/maximisation/many_modes": unit("modes", "proposal", "weighting"),
    "sampling/maximisation/paths": unit("modes"),
    "sampling/maximisation/one_start": unit("symmetries", "proposal", "levels"),
    "sampling/mode_search": unit("modes"),
    "sampling/modes": unit("proposal", "modes"),
    "sampling/found_modes": unit("modes"),
    "sampling/sample_search": unit("modes", "proposal", "symmetries"),
    "sampling/decisive_rows": unit("symmetries"),
    "sampling/symmetry/": unit("symmetries"),
    "sampling/maximisation/data_starts": unit("symmetries"),
    "sampling/maximisation/many_starts": unit("symmetries", "modes"),
    "sampling/density": (
        *unit("densities", "proposal", "independent_proposals"),
        ROWS_ELSEWHERE,
    ),
    "sampling/factors/arrowhead": unit("factors"),
    "sampling/factors/cholesky": unit("factors"),
    "sampling/scales/": (*unit("factors"), "tests/statistical/test_modes_of_scales.py"),
    "sampling/units/": (RECOVERY, UNITS_OF_CORESETS),
    "sampling/units/centring": (
        *unit("units_given_the_rest"),
        MODES_OF_UNITS,
        UNITS,
        UNITS_OF_CORESETS,
    ),
    "sampling/units/conditionals": (RECOVERY, WALKS_OF_UNITS, UNITS_OF_CORESETS),
    "sampling/units/chains": unit("units_given_the_rest"),
    "sampling/units/frames": unit("units_given_the_rest"),
    "sampling/units/histograms": unit("units_given_the_rest"),
    "sampling/units/regressions": unit("units_given_the_rest"),
    "sampling/units/stored_draws": (RECOVERY,),
    "sampling/probing": unit("lines"),
    "sampling/certified_draws/around_mode": unit("weighting"),
    "sampling/sample_and_check": (APPROXIMATE,),
    "predictive/": ("tests/models/test_predict.py", "tests/models/test_missing_outcomes.py"),
    "predictive/approximate_posterior": (APPROXIMATE,),
    "predictive/model_data": (
        "tests/models/test_data_of_draws.py",
        "tests/models/test_predict.py",
    ),
    "after/leave_one_out": unit("loo"),
    "diagnostics/elpd": unit("loo"),
    "after/left_out": unit("loo"),
    "after/surrogates": unit("loo"),
    "after/without_rows": unit("loo"),
    "predictive/pymc_densities": (VERIFICATION, UNITS),
    "solving/": (*unit("tangent_space", "solvers", "adaptive"), CONTRACT),
    "solving/solution": unit("riemannian", "adaptive", "tangent_space"),
    "methods/": (
        *unit("options_of_methods", "tangent_space", "solvers", "riemannian", "adaptive"),
        CONTRACT,
    ),
    "methods/hilbert": (*unit("options_of_methods", "tangent_space", "solvers"), CONTRACT, BUILD),
    "papers/frank_wolfe": (*unit("solvers", "options_of_methods"), CONTRACT),
    "papers/giga": (*unit("solvers", "options_of_methods"), CONTRACT),
    "papers/iht": (*unit("solvers", "options_of_methods"), CONTRACT),
    "methods/pursuit": (*unit("solvers", "options_of_methods"), CONTRACT),
    "papers/quasi_newton": unit("options_of_methods", "adaptive"),
    "methods/riemannian": unit("options_of_methods", "riemannian"),
    "methods/best_of_rounds": unit("adaptive", "riemannian"),
    "methods/loop": (*unit("tangent_space", "riemannian", "adaptive"), CONTRACT),
    "papers/sparse_vi": unit("options_of_methods", "adaptive"),
    "methods/exact_or_uniform": ("tests/statistical/test_methods_from_outside.py", BUILD),
    "methods/job": (*unit("solvers", "tangent_space"), BUILD),
    "papers/adaptive": unit("adaptive"),
    "glm/": (LINEAR, SENSITIVITY, PASS_GLM),
    "papers/signed_rows": (*unit("sensitivity"), SENSITIVITY),
    "papers/sensitivity": (
        *unit("options_of_methods", "sensitivity"),
        SENSITIVITY,
        SENSITIVITY_OF_ROWS,
    ),
    "glm/concavity": unit("polynomial", "control_variates", "factors"),
    "papers/polynomial/": (*unit("polynomial"), PASS_GLM),
    "glm/control_variates/by_levels": unit("levels"),
    "glm/control_variates/averaged": unit("row_quadratics", "control_variates", "factors"),
    "glm/control_variates/expansion": (
        *unit("row_quadratics", "control_variates", "factors"),
        CONTROL_VARIATES,
    ),
    "glm/control_variates/by_gradients": (
        *unit("row_quadratics"),
        "tests/statistical/test_rows_that_see_many_numbers.py",
    ),
    "glm/control_variates/hierarchy": unit("levels"),
    "glm/control_variates/sparse_derivatives": unit("factors"),
    "glm/given_scales/": ("tests/models/test_given_scales.py",),
    "glm/control_variates/": (*unit("control_variates", "factors"), CONTROL_VARIATES),
    "glm/control_variates/method": (
        *unit("options_of_methods", "control_variates", "factors"),
        CONTROL_VARIATES,
    ),
    "glm/predictor/": (LINEAR,),
    "glm/predictor/parabolas": (*unit("row_quadratics"), SEVERAL_PREDICTORS),
    "glm/predictor/cut": (LINEAR, SEVERAL_PREDICTORS),
    "glm/predictor/row_density": unit("polynomial", "row_quadratics"),
    "glm/predictor/seen_rows": (
        *unit("polynomial", "control_variates"),
        MEMORY_AND_CHUNKS,
        PASS_OF_ROWS,
    ),
    "glm/predictor/row_graph": (*unit("row_quadratics"), LINEAR),
    "glm/predictor/predictors": (*unit("row_quadratics", "factors"), SEVERAL_PREDICTORS),
    "glm/predictor/finding": (LINEAR, SEVERAL_PREDICTORS),
}


def files_for(module: str) -> tuple[str, ...]:
    """Test files of a module, given by its path in the package.

    >>> files_for("papers/signed_rows.py")[0]
    'tests/unit/test_sensitivity.py'
    """
    return TESTS[max((key for key in TESTS if module.startswith(key)), key=len)]
