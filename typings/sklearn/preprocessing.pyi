# What is used of scikit-learn's preprocessing, which has no types.

from collections.abc import Sequence

class StandardScaler:
    scale_: Sequence[float]
    mean_: Sequence[float]
    def fit_transform(self, X: Sequence[Sequence[float]]) -> Sequence[Sequence[float]]: ...
