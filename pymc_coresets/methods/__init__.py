"""Methods that choose weighted rows, one file each.

What belongs here: the options of a method, its default size, and its `run` on a `Job`. May
import: NumPy, SciPy, `diagnostics`, `solving`, `rows` and the rooms below; neither PyMC nor
PyTensor.
"""

from collections.abc import Mapping

from pymc_coresets.methods.exact_or_uniform import Exact, Uniform
from pymc_coresets.methods.job import Method
from pymc_coresets.methods.pursuit import Pursuit
from pymc_coresets.methods.riemannian import RiemannianPursuit

#: Maps ``method=...`` to the dataclass of its options.
METHODS: Mapping[str, type[Method]] = {
    method.name: method for method in (RiemannianPursuit, Exact, Pursuit, Uniform)
}
