"""Money on the command line's screens: by the hour, exact on demand, other money by a source."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest

from marketplace.cli.commands.offers import parse_query
from marketplace.cli.shared.prices import Prices, prices
from marketplace.domain.errors import Malformed

RATE = 1_300_000_000  # 1300 lovelace a second


@contextmanager
def source(answer: object) -> Generator[str]:
    """A price source on this machine that answers so."""

    class Told(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Told)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/ada"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def now() -> int:
    return time.time_ns() // 1_000_000


def test_the_hour_is_first_and_the_exact_rate_beside_it() -> None:
    told = Prices()
    assert told.price(RATE, "gpu") == "4.68 ADA per GPU-hour (1300 lovelace per GPU-second)"
    assert told.an_hour(RATE) == "4.68 ADA" and told.amount(150_001) == "0.150001 ADA"
    exact = Prices(exact=True)
    assert exact.price(RATE, "gpu") == "1300 lovelace per GPU-second"
    assert exact.amount(150_001) == "150001 lovelace" and exact.note() == told.note() == ""


def test_other_money_stands_beside_ada_with_its_time_and_its_source() -> None:
    with source({"ada_usd": "0.4512", "ada_eur": "0.4163", "at_ms": now()}) as url:
        told = anyio.run(prices, False, url)
        assert anyio.run(prices, True, url) == Prices(exact=True)  # nobody is asked
    assert told.amount(2_000_000) == "2.000000 ADA (≈ $0.9024, €0.8326)"
    assert told.price(RATE, "core").endswith("(≈ $2.11, €1.95 an hour)")
    assert told.an_hour(RATE) == "4.68 ADA ≈ $2.11 €1.95"
    assert told.note().startswith("1 ADA ≈ $0.4512, €0.4163 at 20")
    assert told.note().endswith(f"UTC, says {url.split('/')[2]}")


@pytest.mark.parametrize(
    ("answer", "why"),
    [({"ada_usd": "0.45", "at_ms": 1}, "old"), ({"ada_usd": 0.45}, "at_ms"), ([], "no object")],
)
def test_a_source_that_fails_or_lies_is_said_and_shown_nowhere(
    answer: object, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with source(answer) as url:
        assert anyio.run(prices, False, url) == Prices()
    assert why in capsys.readouterr().err
    assert anyio.run(prices, False, url) == Prices()  # it is gone
    assert "no dollars and euros" in capsys.readouterr().err


def test_a_source_over_a_plain_line_is_refused_and_none_is_the_default() -> None:
    with pytest.raises(Malformed, match="over https"):
        anyio.run(prices, False, "http://prices.example/ada")
    assert anyio.run(prices, False, "") == Prices()


def test_offers_are_searched_by_ada_an_hour() -> None:
    [term] = parse_query("price<=4.68ADA/h")
    assert term.value == RATE
    assert parse_query("price<=0.001ADA/h")[0].value == 277_777
    assert parse_query("price<=1300")[0].value == RATE
