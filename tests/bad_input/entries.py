"""All entry points, and how many inputs each gets in a short run."""

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.bad_input import arrivals, contents, draws, models, options, rows
from tests.bad_input.outcomes import Call


@dataclass(frozen=True)
class Entry:
    """Calls, how many of them a short run makes, and their share of a long one."""

    calls: st.SearchStrategy[Call]
    short: int
    share: float = 1.0


ENTRIES: Mapping[str, Entry] = {
    "classes of options": Entry(options.option_objects(), 100, 2.0),
    "build_coreset, bad options": Entry(options.bad_builds(), 100),
    "build_coreset, good options": Entry(options.good_builds(), 6, 0.1),
    "build_coreset, wrong draws": Entry(draws.weightings(), 10, 0.3),
    "build_coreset, bad rows": Entry(rows.bad_builds(), 60, 0.5),
    "build_coreset, rows and what needs all of them": Entry(rows.other_methods(), 10, 0.1),
    "open_rows, arguments": Entry(rows.opened(), 60, 0.5),
    "open_rows, sources": Entry(rows.sources(), 100),
    "CoresetStream, bad options": Entry(arrivals.streams(), 60, 0.5),
    "CoresetStream, pilots": Entry(arrivals.pilots(), 30, 0.3),
    "CoresetStream.update": Entry(arrivals.updates(), 60, 0.5),
    "CoresetStream.from_netcdf": Entry(arrivals.restored(), 30, 0.3),
    "Coverage.of": Entry(arrivals.coverages(), 15, 0.2),
    "merge": Entry(arrivals.merges(), 30, 0.3),
    "build_pass_glm, bad options": Entry(options.summaries(), 60, 0.5),
    "build_pass_glm, given": Entry(options.fixed_values(), 15, 0.2),
    "models": Entry(models.wrong_models(), 20, 0.2),
    "data": Entry(models.data(), 8, 0.3),
    "check, log_ratios, reweight: draws": Entry(draws.judgements(), 60),
    "check_approximation": Entry(draws.approximated(), 12, 0.3),
    "sample": Entry(options.bad_samples(), 60, 0.5),
    "sample in one call": Entry(options.bad_calls(), 60, 0.5),
    "coreset_of": Entry(options.coresets_of_draws(), 40, 0.5),
    "reweight": Entry(options.reweightings(), 30, 0.5),
    "check of a summary": Entry(options.summary_checks(), 15, 0.2),
    "sum of summaries": Entry(options.sums(), 15, 0.2),
    "compare": Entry(options.comparisons(), 40, 0.5),
    "compare, plot_comparison: draws": Entry(draws.compared(), 40, 0.5),
    "plot_comparison": Entry(options.plots_of_comparisons(), 40, 0.5),
    "plot_weights, plot_history": Entry(options.plots_of_coresets(), 40, 0.5),
    "summary of a coreset": Entry(options.summaries_of_coresets(), 40, 0.5),
    "to_netcdf, from_netcdf": Entry(options.paths(), 40, 0.5),
    "from_netcdf, models": Entry(options.read_with_models(), 15, 0.2),
    "from_netcdf, contents": Entry(contents.contents(), 12, 0.3),
}
