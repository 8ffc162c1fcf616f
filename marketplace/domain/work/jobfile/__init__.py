"""Job files: strict, with the line of every problem and the nearest known name.

``parse(root_node, name) -> JobFile``; the tree comes from ``client/jobfiles.py`` (YAML and JSON).
"""

from marketplace.domain.work.jobfile.nodes import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    BadValue,
    DuplicateKey,
    Items,
    JobFileRefused,
    JobSyntax,
    MissingKey,
    Node,
    Notes,
    Problem,
    Scalar,
    ScalarKind,
    Table,
    UnknownKey,
    WrongType,
)
from marketplace.domain.work.jobfile.parse import JobFile, Source, nominal_least, parse

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_NODES",
    "BadValue",
    "DuplicateKey",
    "Items",
    "JobFile",
    "JobFileRefused",
    "JobSyntax",
    "MissingKey",
    "Node",
    "Notes",
    "Problem",
    "Scalar",
    "ScalarKind",
    "Source",
    "Table",
    "UnknownKey",
    "WrongType",
    "nominal_least",
    "parse",
]
