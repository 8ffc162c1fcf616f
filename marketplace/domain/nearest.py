"""The known name that a misspelt one is nearest to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'model'?``, or the known names when none is near."""
    names = list(known)
    near = difflib.get_close_matches(word.casefold()[:60], names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; known here: {', '.join(names)}"
