"""The page reads both forms of a job as the market does, and hashes what was posted."""

from __future__ import annotations

from tests.unit.golden.test_signed import jobs, versions
from tests.unit.web.test_numbers import ASSETS, page

READ = f"""
const {{ named }} = await import("{ASSETS}/money/jobspec.js");
const {{ workOf }} = await import("{ASSETS}/money/records.js");
const {{ toHex }} = await import("{ASSETS}/crypto/bytes.js");
return given.map((posted) => [named(posted), toHex(workOf(posted))]);
"""


def test_the_page_reads_both_forms_of_a_job() -> None:
    for job in jobs().values():
        if job.gang is not None:  # the page posts none, and shows it as it is
            continue
        now, before = versions(job).values()
        wire = now.to_wire()
        ports = [one.to_wire() for one in before.ports]
        named = {**wire, "price": before.price.to_wire(), "ports": ports}
        for later in ("relay", "volumes"):  # the form of before has no place for them
            named.pop(later, None)
        assert page(READ, [wire, before.to_wire()]) == [
            [wire, now.hash.hex()],
            [named, before.hash.hex()],
        ]
