# What is used of scikit-learn's linear models, which have no types.

from collections.abc import Sequence

class Ridge:
    coef_: Sequence[float]
    intercept_: float
    def __init__(self, alpha: float) -> None: ...
    def fit(self, X: Sequence[Sequence[float]], y: Sequence[float]) -> Ridge: ...
