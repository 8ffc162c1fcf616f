"""Run every check at once within ten seconds, and pack a support bundle without secrets."""

from __future__ import annotations

import io
import json
import platform
import re
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from adapter.doctor.containers import (
    check_allow_list,
    check_cgroups,
    check_container,
    check_daemon_file,
    check_docker,
    check_firewall,
    check_mesh,
    check_sandbox,
    check_stores,
    check_volumes,
)
from adapter.doctor.findings import Finding, Severity, found
from adapter.doctor.gpu import check_devices, check_kernel_log, check_modules, check_quarantine
from adapter.doctor.host import (
    check_clock,
    check_kernel,
    check_keys,
    check_market,
    check_state,
)
from adapter.doctor.money import check_fees
from adapter.doctor.world import World

BUDGET_S: Final = 8.0
Check = Callable[[World], Iterator[Finding]]
CHECKS: Final[tuple[Check, ...]] = (
    check_devices, check_kernel_log, check_modules, check_quarantine, check_docker,
    check_daemon_file, check_container, check_firewall, check_cgroups, check_sandbox,
    check_volumes, check_mesh, check_stores, check_allow_list, check_kernel, check_clock,
    check_state, check_keys, check_fees, check_market,
)  # fmt: skip
_ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def run_doctor(seen: World, budget_s: float = BUDGET_S) -> list[Finding]:
    """Every finding about *seen*, errors first.  Ends within *budget_s*, whatever hangs: a check
    that does not is a finding itself."""
    results: dict[Check, list[Finding]] = {}

    def perform(check: Check) -> None:
        name = check.__name__.removeprefix("check_")
        try:
            results[check] = list(check(seen))
        except Exception as error:  # noqa: BLE001  a supervisor: one broken check hides no other
            results[check] = [found("CHECK_FAILED", f"{name}: {error}")]

    threads = {
        check: threading.Thread(target=perform, args=(check,), daemon=True) for check in CHECKS
    }
    deadline = time.monotonic() + budget_s
    for thread in threads.values():
        thread.start()
    findings: list[Finding] = []
    for check, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        slow = found("CHECK_SLOW", f"{check.__name__.removeprefix('check_')} did not end in time")
        findings += results.get(check, [slow])
    return sorted(findings, key=lambda one: _ORDER.index(one.severity))


def report_json(findings: list[Finding]) -> str:
    """``{"findings": [{"code", "severity", "cause", "remedy"}]}``."""
    return json.dumps({"findings": [one.to_wire() for one in findings]}, ensure_ascii=False)


def exit_code(findings: list[Finding]) -> int:
    """1 when an error stands, else 0."""
    return int(any(one.severity is Severity.ERROR for one in findings))


_SECRET: Final = re.compile(
    r"(?i)([\w.-]*(?:key|secret|token|password|mnemonic|seed|auth|credential|cookie)[\w.-]*)"
    r"(\"?\s*[:=]\s*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s,}\n]+)"
)
_BARE: Final = re.compile(
    r"(?i)\b(?:[0-9a-f]{64,}|[a-z0-9_]*(?:sk|prv)1[0-9a-z]{20,}|eyJ[\w-]{10,}\.[\w.-]+)\b|"
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)|"
    r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
    re.DOTALL,
)


def redact(text: str) -> str:
    """*text* without anything that looks like a secret: named values, long hex, bech32 signing
    keys, tokens, PEM blocks and credentials in addresses."""
    return _BARE.sub("[removed]", _SECRET.sub(r"\1\2[removed]", text))


def support_bundle(target: Path, findings: list[Finding], texts: dict[str, str]) -> Path:
    """Write findings, versions and *texts* (configuration, recent log) to a tar.gz, redacted.

    Reads no key file: the caller names what goes in.  The file is readable by its owner only.
    """
    versions = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    parts = {
        "findings.json": report_json(findings),
        "versions.json": json.dumps(versions, indent=1),
        **texts,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(mode=0o600)
    with tarfile.open(target, "w:gz") as archive:
        for name, text in parts.items():
            data = redact(text).encode()
            entry = tarfile.TarInfo(Path(name).name)
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return target
