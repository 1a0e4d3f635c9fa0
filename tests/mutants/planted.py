"""Bugs planted by hand: one wrong replacement each, in the module of that path."""

from tests.mutants.operators import Mutant


def plant(module: str, *changes: tuple[str, str]) -> list[tuple[str, str, str]]:
    return [(module, right, wrong) for right, wrong in changes]


PLANTED = [
    *plant(
        "solving/problem.py",
        ("1 / math.sqrt(potentials.shape[-1])", "1 / math.sqrt(potentials.shape[0])"),
        (
            "mean = vectors.mean(axis=-1) if",
            "mean = np.full(vectors.shape[:-1], vectors.mean()) if",
        ),
        ("else vectors @ weights", "else vectors.mean(axis=-1)"),
        ("else np.sqrt(weights)", "else weights"),
        ("target += weights[rows] @ block", "target += block.sum(axis=0)"),
        ("norms: Vector = peak * np.sqrt", "norms: Vector = np.sqrt"),
        ("<= limit] = 0", "<= 0] = 0"),
        ("-float(block.min())", "float(block.min())"),
        ("(self.base_weights < 0).any()", "(self.base_weights < -9).any()"),
    ),
    *plant(
        "solving/space.py",
        ("selectable &= problem.base_weights > 0", "selectable &= problem.base_weights >= 0"),
        ("cosines *= length", "cosines *= 1"),
        ("total_norm / self._unit", "total_norm"),
        (
            "weights[support] @ problem.heldout_vectors[support]",
            "problem.heldout_vectors[support].sum(0)",
        ),
        ("scores[self._barred] = -np.inf", "scores[self._barred] = 0"),
        ("(direction / length).astype", "direction.astype"),
        ("* self._unit * self._unit", "* self._unit"),
        ("min(max(math.frexp(longest)[1], -1000), 1000)", "0"),
        ("np.finfo(np.float64).eps * self.norms.max()", "0"),
    ),
    *plant(
        "solving/nnls.py",
        ("column -= basis @ (column @ basis)", "pass"),
        ("[:n, n] = coefficients", "[:n, n] = 0"),
        ("ratios.min() * (trial", "ratios.max() * (trial"),
        ("if height <= rounding(row):", "if height <= 1e-3 * np.linalg.norm(row):"),
        ("if height <= rounding(row):", "if height <= 0:"),
        ("(trial := self._unconstrained()).min() <= 0", "(trial := self._unconstrained()) is None"),
        ("self._coordinates[: n - 1] = self._target @ basis", "pass"),
        ("if coordinate <= self._rounding:", "if coordinate <= 0:"),
        ("if n == self._basis.shape[1]:", "if n == self._basis.shape[0]:"),
    ),
    *plant(
        "reading/blocks/dependence.py",
        ("        self._link(one, other)\n        return", "        return"),
        ("self._link(labels, np.broadcast_to(chosen, labels.shape))", "pass"),
        ("if isinstance(node.op, CheckAndRaise) else node.inputs", "if False else node.inputs"),
        ("-1) if found is None else found", "0) if found is None else found"),
    ),
    *plant(
        "reading/blocks/row_uses.py",
        ("[start : start + length] = np.arange(length)", "[start : start + length] = 0"),
        ("combined * (codes.max() + 1) + codes", "codes"),
    ),
    *plant(
        "reading/blocks/factors.py",
        ("f.divides() and f.n_shared(n_dims) <= MOST_SHARED", "f.divides()"),
        ("key=lambda f: f.n_products(n_dims)", "key=lambda f: f.n_blocks"),
    ),
    *plant(
        "reading/blocks/structure.py",
        ("np.where(found < 0, self.n_blocks - 1, found)", "found"),
    ),
    *plant(
        "reading/blocks/independence.py",
        ("+ reverse.terms -", "-"),
        ("if off.any():", "if False:"),
    ),
    *plant(
        "options.py",
        ("if not least <= whole <= most:", "if False:"),
        ("if whole < least and most", "if whole <= least and most"),
    ),
    *plant(
        "solving/loop.py",
        ("progress.heldout_objective <= method", "progress.objective <= method"),
        ("except KeyboardInterrupt:", "except GeneratorExit:"),
        ("status = Status.INTERRUPTED", "pass"),
        ("> np.linalg.norm(state.residual):", "< np.linalg.norm(state.residual):"),
        ("state, status = best, Status.NO_PROGRESS", "status = Status.NO_PROGRESS"),
        ("if overfits and not improved else 0", "if not improved else 0"),
        ("recorder.steps[-1].best_estimate", "recorder.steps[0].best_estimate"),
    ),
    *plant(
        "rows/memory.py",
        ("counts * (heights[-1] / size)", "counts * (heights[-1] / len(which))"),
        ("counts * (heights[-1] / size)", "counts * (len(masses) / size)"),
        ("np.random.default_rng(key).random(size)", "np.full(size, 0.5)"),
        ('side="right"', 'side="left"'),
        ("numbers_of(self.all.positions, key)) / weights", "numbers_of(self.all.positions, key))"),
        ("self.total_weight / size)\n            return", "1.0)\n            return"),
    ),
    *plant(
        "rows/source.py",
        ("values -= np.where(np.isfinite(means), means, 0.0)", "values -= means"),
        ("np.where(deviations > _ROUNDING * np.abs(means), deviations, 0.0)", "deviations"),
        ("total=values @ rows.base_weights", "total=values.sum(axis=1)"),
        ("0.5 * scores / self.scale", "1.0 * scores / self.scale"),
        ("+ 0.5 / self.n_rows)", "+ 0.0)"),
        ("np.where(useful & (keys <= 1.0), keys, np.inf)", "np.where(keys <= 1.0, keys, np.inf)"),
        ("if self.n_candidates >= self.n_rows:", "if False:"),
        ("numbers_of(rows.positions, self.key)", "numbers_of(np.arange(len(rows)), self.key)"),
        ("[: self._size])", "[self._size :])"),
    ),
    *plant(
        "rows/keyed.py",
        ("first // _PER_BLOCK", "first"),
        ("first - first % _PER_BLOCK", "first"),
    ),
    *plant(
        "methods/frank_wolfe.py",
        ("gamma = 1.0 if is_first else", "gamma = 0.5 if is_first else"),
        ("min(descent / curvature, 1.0)", "min(descent / curvature / 2, 1.0)"),
        ("weights = (1 - gamma) * state.weights", "weights = 1.0 * state.weights"),
        ("weights[best] += gamma * length", "weights[best] = gamma * length"),
        ("length = space.total_norm /", "length = space.norms.sum() /"),
        ("best = space.best(scores)", "best = space.best(scores * space.norms)"),
        ("length * space.row(best) - (space.target - state.residual)", "length * space.row(best)"),
        ("return refit(exact) if self.polish else exact", "return exact"),
    ),
    *plant(
        "methods/giga.py",
        ("space.best(ascent / sine)", "space.best(ascent)"),
        ("side = unit - overlap * y", "side = unit"),
        ("(side @ side) - overlap * rise", "(side @ side) + overlap * rise"),
        ("combined = (1 - gamma) * y + gamma * unit", "combined = y + gamma * unit"),
        ("(1 - gamma) / (reach or 1.0)", "1 / (reach or 1.0)"),
        ("weights *= (space.target @ y) / length", "weights *= space.target @ y"),
        ("1 - np.square(cosine)", "1 + np.square(cosine)"),
        ("(state.alignment - ascent)", "(state.alignment + ascent)"),
        ("weights = scale * state.weights", "weights = 1.0 * state.weights / scale / 2"),
        ("return refit(exact) if self.polish else exact", "return exact"),
    ),
    *plant(
        "methods/pursuit.py",
        ("scores = space.project(state.residual)", "scores = space.project(space.target)"),
        (
            "scores = space.project(state.residual)",
            "scores = space.project(state.residual) * space.norms",
        ),
        (
            "scores = space.project(state.residual)",
            "scores = -space.project(state.residual)",
        ),
        ("threshold = space.rounding +", "threshold = 1e-3 * distance +"),
        ("ActiveSet(empty.residual, empty.size)", "ActiveSet(empty.residual, empty.size - 1)"),
        ("replace(moved, status=Status.SIZE_REACHED) if moved.is_full else moved", "moved"),
        ("weights = np.zeros_like(state.weights)", "weights = state.weights"),
        ("_STEPS_PER_POINT = 10", "_STEPS_PER_POINT = 1"),
    ),
    *plant(
        "methods/iht.py",
        ("np.maximum(values[largest], 0.0)", "values[largest]"),
        ("momentum * (lengths - state.lengths)", "0 * (lengths - state.lengths)"),
        ("residual - momentum * moved", "residual + momentum * moved"),
        ("np.where(support, gradient, outside)", "gradient"),
        ("np.where(support, 0.0, gradient)", "gradient"),
        ("if residual @ residual < state.residual @ state.residual:", "if True:"),
        ("float(residual @ moved / distance), 0.0)", "float(residual @ moved / distance), -9.0)"),
        ("return refit(state)", "return state"),
        (
            "gradient = space.project(state.ahead_residual)",
            "gradient = space.project(state.residual)",
        ),
        ("lengths * space.inverse_norms", "lengths"),
    ),
    *plant(
        "glm/logistic/bounds.py",
        ("(others - own)", "(0 * own)"),
        ("exponents[each, nearest] = np.multiply", "_ = np.multiply"),
        ("np.abs(shifts)", "0 * np.abs(shifts)"),
        ("np.append(ball_center, 1.0)", "np.append(ball_center, 0.0)"),
        ("_RADIUS / math.sqrt(spread)", "_RADIUS / spread"),
        ("weights + similar", "1.0 + similar"),
        ("float(weights @ values / total)", "float(values.mean())"),
        ("squared_distances(vectors, points[", "squared_distances(vectors, centers["),
        ("math.log(mean) + math.log", "math.log(mean) - math.log"),
    ),
    *plant(
        "glm/logistic/sensitivity.py",
        ("masses / sensitivities[which]", "masses * sensitivities[which]"),
        ("source.all.base_weights * sensitivities, size", "source.all.base_weights, size"),
    ),
    *plant(
        "glm/logistic/signed_rows.py",
        ("(offset[:, None] - centers[:, -1]) ** 2", "0"),
        ("labels[:, None] * np.asarray", "np.asarray"),
        ("sparse.diags_array(labels,", "sparse.diags_array(labels**2,"),
        ("weights=weights * offset", "weights=offset"),
    ),
    *plant(
        "glm/logistic/clustering.py",
        ("_N_RUNS = 10", "_N_RUNS = 1"),
        ("scores = weights * distances", "scores = distances"),
        ("sums[filled] / masses", "sums[filled] / 1"),
    ),
    *plant(
        "methods/riemannian.py",
        ("np.var(log_ratios)", "np.var(own)"),
        ("(1 - share) * known.own + share * known.look.total", "known.look.total"),
        (
            "(1 - share) * known.own + share * known.look.total",
            "known.own + share * known.look.total",
        ),
        ("self.best, unimproved = view.coreset, 0", "self.best, unimproved = current, 0"),
        ("Status.SAMPLING_FAILED if view is None else Status.NO", "Status.OPTIMAL or Status.NO"),
        ("known, share = accepted, 1.0", "share = 1.0"),
        ("max(self.tolerance, run.start.objective)", "run.start.objective"),
        ("if not run.steps:", "if False:"),
        ("return Status.OUT_OF_TIME\n            goal", "break\n            goal"),
        ("smoothed.weights[0] if smoothed", "None if smoothed"),
        ("self.best, selection = found\n", "_, selection = found\n"),
        ("_CERTIFYING if enough else None", "None"),
        ("_CERTIFYING if enough else None", "_CERTIFYING"),
        ("if not len(view.look.candidates):", "if False:"),
        ("Status.SAMPLING_FAILED if view is None else view", "view"),
        ("if len(self.start.rows) <= self.size:", "if len(self.start.rows) > self.size:"),
        ("self.start if len(self.start.rows) <= self.size", "self.start if True"),
        ("TOLERANCE_REACHED if self.best.objective <=", "TOLERANCE_REACHED if 1 <="),
        ("options.start_size or max(_LEAST_START, ", "options.start_size or min(_LEAST_START, "),
        ("min(_MARGIN * self.options.tolerance, _LOOSEST)", "_MARGIN * self.options.tolerance"),
        ("best.objective if math.isfinite(best.objective) else", "run.start.objective or"),
    ),
    *plant(
        "methods/rounds.py",
        ("part /= 2", "part *= 2"),
        ("return Damp(taken * sound_part(step))", "return Damp(sound_part(step))"),
        (
            "pareto_smooth(step[None]).sound:\n        return Accept",
            "False:\n        return Accept",
        ),
        ("while part > _SHORTEST and not", "while part > _SHORTEST and"),
    ),
    *plant(
        "sampling/proposal.py",
        ("squares / _DEGREES_OF_FREEDOM)", "squares)"),
        ("_DEGREES_OF_FREEDOM + n_dims) / 2", "_DEGREES_OF_FREEDOM + 1) / 2"),
        ("below - above for above, below", "above - below for above, below"),
        ("cls(moved, like.factor @ root)", "cls(moved, root)"),
        ("moved = mode + like", "moved = mode - like"),
        ("start.mode + start.offset(found.x)", "start.mode"),
    ),
    *plant(
        "potentials/fused_loops.py",
        ("values = known.copy()", "values = known"),
        ("np.broadcast_shapes(*(a.shape[:n] for a in arrays))", "arrays[0].shape[:n]"),
        ("axis=n + axis", "axis=axis"),
    ),
    *plant(
        "rows/collapsing.py",
        ("np.arange(n_rows)[::-1]", "np.arange(n_rows)"),
        ("if all(np.array_equal", "if True or all(np.array_equal"),
        ("(c + 0.0)", "c"),
        ("len(which) < _DISTINCT * n_probed", "True"),
    ),
    *plant(
        "solving/candidates.py",
        ("[draw_of]", "[rng.permutation(draw_of)]"),
        ("or np.ptp(look.total) == 0", ""),
        ("_HELDOUT * len(different)", "len(different) / 2"),
    ),
    *plant(
        "methods/metering.py",
        ("+= n_rows * n_draws", "+= n_rows + n_draws"),
        ("n_rows / self.n_rows", "1"),
        ("self._count(self.n_rows, len(look.total))", "pass"),
        ("getattr(self, name) + time", "getattr(self, name) - time"),
    ),
    *plant(
        "methods/adaptive.py",
        ("found.weighted_symmetrised_kl - found.kl", "found.kl"),
        ("residual * math.sqrt(residual.size)", "residual"),
    ),
    *plant(
        "diagnostics/importance.py",
        ("efficiency * float(np.exp", "float(np.exp"),
        ("<= EQUAL_RATIOS:", "< -1:"),
        ("int(3 * (n_draws / efficiency) ** 0.5)", "int(3 * n_draws**0.5)"),
        ("- float(np.log(log_r.size))", "- float(np.log(log_r.shape[1]))"),
        ("return rng.permutation(np.minimum(", "return (np.minimum("),
    ),
    *plant(
        "diagnostics/judging.py",
        ("return not self.rhat > self.rhat_limit and", "return self.rhat <= self.rhat_limit and"),
        ("return max(direct, from_variance)", "return min(direct, from_variance)"),
        ("if self.pareto_khat >= KHAT_USELESS and not self.negligible", "if False"),
        ("if self.converged or hopeless", "if self.converged"),
        ("few = found.ess < MIN_ESS and not found.negligible", "few = found.ess < MIN_ESS"),
    ),
    *plant(
        "diagnostics/proposed.py",
        ("self.log_ratios + loglik", "self.log_ratios"),
        (
            "replace(self, log_ratios=log_ratios) if np",
            "replace(self, log_ratios=log_ratios) if 1 or np",
        ),
    ),
    *plant(
        "sampling/metric.py",
        ("is_cov=True", "is_cov=False"),
        ("_OTHER_STARTS & options.keys() or khat", "khat"),
        ("values[chain] for name", "values[0] for name"),
        ('return {"tune": _TUNE} | {', "return {"),
    ),
    *plant(
        "exceptions.py",
        ("skip_file_prefixes=(_PACKAGE,)", "stacklevel=2"),
        ("parent) + os.sep", "parent)"),
    ),
]


def planted(module: str, text: str, stale: list[str]) -> list[Mutant]:
    """The planted bugs of a module; those that no longer fit its text are added to `stale`."""
    mutants = []
    for where, right, wrong in PLANTED:
        if where != module:
            continue
        if text.count(right) != 1:
            stale.append(f"{module}: {right!r}")
            continue
        start = text.index(right)
        mutants.append(Mutant(module, start, start + len(right), wrong))
    return mutants
