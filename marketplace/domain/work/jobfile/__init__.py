"""Job files: strict, with the line of every problem and the nearest known name.

``parse(root_node, name) -> JobFile``; the tree comes from ``marketplace/jobtext.py`` (YAML and
JSON). ``write(spec)`` is the way back.
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
from marketplace.domain.work.jobfile.parse import JobFile, Source, parse
from marketplace.domain.work.jobfile.values import Section
from marketplace.domain.work.jobfile.write import write

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
    "Section",
    "Source",
    "Table",
    "UnknownKey",
    "WrongType",
    "parse",
    "write",
]
