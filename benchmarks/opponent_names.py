"""What the models of `benchmarks.opponents` are called in the summary and in the picture."""

__all__ = ["MODELS"]

MODELS = {
    "flights-weather": "flights, weather",
    "logistic-1e6": "logistic, 10⁶ rows",
    "logistic-1e7": "logistic, 10⁷ rows",
    "birthdays": "births, 71 parameters",
    "varying-slopes-logistic": "varying slopes",
    "varying-slopes": "varying slopes, normal",
    "mixture": "mixture",
    "funnel": "funnel",
    "users": "2,000 users",
    "robust": "Student t",
    "flights": "flights, repeated",
    "justifbribe": "bribes, repeated",
    "randhie-poisson": "visits to doctors",
    "mortgages": "mortgages, repeated",
}
