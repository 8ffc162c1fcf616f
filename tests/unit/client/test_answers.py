"""What the client reads of a market's answers, held against the API as it is pinned, and the one
door through which they come.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from marketplace.client.net import answers, cluster_answers
from marketplace.client.net.reading import AnswerUnreadable, read, read_all
from tests.unit.support.answers import plain_job

DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "openapi.json").read_text()
)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
NAMES = {
    "NetworkAnswer": "Network", "ChallengeAnswer": "Challenge", "SessionAnswer": "Session",
    "DeviceAnswer": "Device", "ProcessorAnswer": "Processor", "OfferAnswer": "Offer",
    "FeesAnswer": "JobFees",
    "RouteFeesAnswer": "RouteFees", "OtherAnswer": "Other", "MemberQuoteAnswer": "MemberQuote", "JobQuoteAnswer": "JobDryRun",
    "GangQuoteAnswer": "GangDryRun", "RefusedAnswer": "Refused", "ExplainAnswer": "Explanation",
    "TransactionAnswer": "Transaction", "JobAnswer": "Job", "GangAnswer": "Gang",
    "LeaseAnswer": "Lease", "RenewalAnswer": "Renewal", "RenewedAnswer": "Lease", "TickAnswer": "Tick", "SampleAnswer": "Sample",
    "JobEndAnswer": "JobEnd", "ExpectedStartAnswer": "ExpectedStart", "EventAnswer": "Event", "LogAnswer": "LogLine", "DoneAnswer": "Done",
    "KeyAnswer": "Key", "NewKeyAnswer": "NewKey", "SpendRowAnswer": "SpendRow",
    "PortAnswer": "JobPort", "TicketAnswer": "Ticket", "LinkAnswer": "PortLink",
    "NewLinkAnswer": "NewLink", "LinksAnswer": "PortLinks",
    "ReplicaAnswer": "Replica", "ServiceLoadAnswer": "ServiceLoad", "ServiceAnswer": "Service",
    "OutputAnswer": "Output", "OutputsAnswer": "Outputs", "VoucherAnswer": "Voucher", "ChannelAnswer": "Channel",
    "ClusterAnswer": "Cluster", "ClusterMemberAnswer": "ClusterMember", "SignedAnswer": "SignedBytes",
    "OrderKeptAnswer": "OrderKept", "GuestPassAnswer": "GuestPass",
    "StoreAnswer": "Store", "StorePassAnswer": "StorePass",
}  # fmt: skip
KINDS = {
    name: kind for name, kind in (vars(answers) | vars(cluster_answers)).items()
    if is_typeddict(kind) and not name.startswith("_")
}  # fmt: skip
WORDS = {str: "string", int: "integer", bool: "boolean", type(None): "null"}


def fits(hint: Any, schema: dict[str, Any]) -> bool:
    """Whether everything that *schema* allows is a *hint*."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        if is_typeddict(hint):
            return NAMES[hint.__name__] == name or name == "Nothing"
        return fits(hint, SCHEMAS[name])
    if "anyOf" in schema:
        options = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        return all(any(fits(one, part) for one in options) for part in schema["anyOf"])
    if get_origin(hint) is UnionType:
        return any(fits(one, schema) for one in get_args(hint))
    if get_origin(hint) is list:
        return schema["type"] == "array" and fits(get_args(hint)[0], schema["items"])
    if get_origin(hint) is dict:
        inner = get_args(hint)[1]
        return schema["type"] == "object" and (
            inner is Any or fits(inner, schema["additionalProperties"])
        )
    return schema.get("type") == WORDS.get(hint)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_what_is_read_is_in_the_api_and_of_that_kind(name: str) -> None:
    kind: Any = KINDS[name]
    schema = SCHEMAS[NAMES[name]]
    for field, hint in get_type_hints(kind).items():
        assert field in schema["properties"], f"{name}.{field}"
        assert fits(hint, schema["properties"][field]), f"{name}.{field}"
    assert kind.__required_keys__ <= set(schema["required"])


def test_the_comparison_can_fail() -> None:
    assert not fits(int, SCHEMAS["Job"]["properties"]["name"])
    assert not fits(str, SCHEMAS["Job"]["properties"]["exit_code"])
    assert not fits(list[int], SCHEMAS["Job"]["properties"]["transactions"])
    assert not fits(answers.LeaseAnswer, SCHEMAS["Explanation"]["properties"]["explain"])


def test_unknown_fields_stay_and_the_map_is_the_one_that_came() -> None:
    came = plain_job(colour="green")
    assert read(answers.JobAnswer, came, "job") is came


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"state": None}, "job.state: text is expected"),
        ({"spent": "12"}, "job.spent: a whole number is expected"),
        ({"spent": True}, "job.spent: a whole number is expected"),
        ({"spent": 1.5}, "job.spent: a whole number is expected"),
        ({"simulated": 1}, "job.simulated: true or false is expected"),
        ({"exit_code": "0"}, "job.exit_code: a whole number is expected"),
        ({"transactions": {}}, "job.transactions: a list is expected"),
        ({"transactions": [{"id": "ab", "kind": "open", "state": "SEEN", "fee": "1"}]},
         "job.transactions[0].fee: a whole number is expected"),
        ({"transactions": [{"id": "ab"}]}, "job.transactions[0]: kind is missing"),
        ({"explain": []}, "job.explain: a map is expected"),
        ({"spec": "text"}, "job.spec: a map is expected"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    with pytest.raises(AnswerUnreadable) as refused:
        read(answers.JobAnswer, plain_job(**change), "job")
    assert refused.value.message == says and refused.value.code == "ANSWER_UNREADABLE"


def test_what_a_market_of_before_does_not_say_may_be_missing() -> None:
    came = plain_job()
    assert "ports" not in came and read(answers.JobAnswer, came, "job") is came
    wrong = plain_job(ports=[{"port": "80", "auth": "token", "url": ""}])
    with pytest.raises(AnswerUnreadable, match="port: a whole number is expected"):
        read(answers.JobAnswer, wrong, "job")


@pytest.mark.parametrize("value", [None, [], "text", 7, {}])
def test_no_answer_at_all_is_refused(value: object) -> None:
    with pytest.raises(AnswerUnreadable):
        read(answers.JobAnswer, value, "job")


def test_null_is_allowed_where_the_api_allows_it() -> None:
    read(answers.JobAnswer, plain_job(exit_code=None, quote=None), "job")
    read(answers.JobAnswer, plain_job(exit_code=1, quote={"lease": "lease_1"}), "job")
    with pytest.raises(AnswerUnreadable, match=r"job.spent: a whole number is expected"):
        read(answers.JobAnswer, plain_job(spent=None), "job")


def test_a_list_is_read_one_by_one() -> None:
    with pytest.raises(AnswerUnreadable, match=r"outputs\[1\]: sha256 is missing"):
        read_all(
            answers.OutputAnswer,
            [{"path": "a", "sha256": "b", "size": 1}, {"path": "a"}],
            "outputs",
        )
