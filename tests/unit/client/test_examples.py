"""The examples are what they say: every job file parses, every script names only what exists."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from marketplace.client.jobs import jobfiles

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.name)
def test_an_example_job_is_a_job(path: Path) -> None:
    replicas = path.name == "replicas.yaml"
    loaded = jobfiles.load_service(path)[0] if replicas else jobfiles.load(path)
    assert loaded.spec.name and loaded.spec.price.budget
    assert all(blob.is_file() for blob in loaded.blobs.values())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("run_*.py")), ids=lambda p: p.name)
def test_an_example_script_imports_what_exists(path: Path) -> None:
    names = 0
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("marketplace"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), f"{path.name}: {node.module}.{alias.name}"
                names += 1
    assert names >= 2
