"""The list of source mutants: one edit of ``settle.py`` each, and what gives it away.

One edit that was tried changes nothing that can be seen, and is left out: keeping the payee of a
flushed run, since that run owes 0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """*old* replaced by *new* (its only occurrence), and the question that kills it."""

    old: str
    new: str
    killer: str

    def __str__(self) -> str:
        return f"{' '.join(self.new.split())[:48]} for {' '.join(self.old.split())[:32]}"


MUTANTS: list[Mutant] = [
    Mutant(
        'locked = choose(eq_int(tag(head(var("addr"))), integer(0))',
        'locked = choose(eq_int(tag(head(var("addr"))), integer(1))',
        "ada, accepts: claim",
    ),
    Mutant(
        'let({"_": flushed}, unit())',
        "unit()",
        "ada, claim: payout 1, payment hash",
    ),
    Mutant(
        '        tail(var("steps")),\n        tail(var("outs")),\n        var("payee"),',
        '        tail(var("steps")),\n        var("outs"),\n        var("payee"),',
        "ada, accepts: claim",
    ),
    Mutant(
        '        tail(var("steps")),\n        tail(var("outs")),',
        '        var("steps"),\n        tail(var("outs")),',
        "ada, accepts: claim",
    ),
    Mutant(
        'return byte_string(b""), flushed, integer(0)',
        'return byte_string(b""), flushed, var("owed")',
        "ada, accepts: run broken by a top up",
    ),
    Mutant(
        'return byte_string(b""), flushed, integer(0)',
        'return byte_string(b""), var("outs"), integer(0)',
        "ada, accepts: run broken by a top up",
    ),
    Mutant(
        'var("outs"), add(var("owed"), pay))',
        'var("outs"), pay)',
        "ada, two of one payout: payout 2, one less",
    ),
    Mutant(
        'var("outs"), add(var("owed"), pay))',
        'var("outs"), var("owed"))',
        "ada, two of one payout: payout 2, one less",
    ),
    Mutant(
        'other = call(var("step"), var("payout"), flushed, pay)',
        'other = call(var("step"), var("payout"), var("outs"), pay)',
        "ada, accepts: two payouts",
    ),
    Mutant(
        'other = call(var("step"), var("payout"), flushed, pay)',
        'other = call(var("step"), var("payout"), flushed, add(var("owed"), pay))',
        "ada, accepts: two payouts",
    ),
    Mutant(
        'other = call(var("step"), var("payout"), flushed, pay)',
        'other = call(var("step"), var("payee"), flushed, pay)',
        "ada, accepts: claim",
    ),
    Mutant(
        'choose(eq_bytes(var("payout"), var("payee")), same, other)',
        "choose(boolean(True), same, other)",
        "ada, accepts: two payouts",
    ),
    Mutant(
        'choose(eq_bytes(var("payout"), var("payee")), same, other)',
        "choose(boolean(False), same, other)",
        "ada, accepts: two of one payout",
    ),
    Mutant(
        'amount, _inline(var("stage"), state))',
        "amount, _inline(integer(OPEN), state))",
        "ada, accepts: claim closing",
    ),
    Mutant(
        'cons(data_int(var("upto")), tail(var("state"), 2))',
        'cons(data_int(var("cum")), tail(var("state"), 2))',
        "ada, accepts: claim part",
    ),
    Mutant(
        'cons(data_int(var("upto")), tail(var("state"), 2))',
        'cons(data_int(var("upto")), data_list())',
        "ada, accepts: claim closing",
    ),
    Mutant(
        '    amount = sub(var("amount"), var("diff"))\n    return call(var("emit"), head(var("out"))',
        '    amount = var("amount")\n    return call(var("emit"), head(var("out"))',
        "ada, accepts: claim",
    ),
    Mutant(
        '    amount = sub(var("amount"), var("diff"))\n    return call(var("emit"), head(var("out"))',
        '    amount = sub(var("amount"), var("pay"))\n    return call(var("emit"), head(var("out"))',
        "ada, accepts: claim",
    ),
    Mutant(
        'constr(0, cons(head(tail(var("consts"), 3)), data_list()))',
        'constr(0, cons(head(tail(var("consts"), 1)), data_list()))',
        "ada, accepts: finish",
    ),
    Mutant(
        'constr(0, cons(head(tail(var("consts"), 3)), data_list()))',
        'constr(1, cons(head(tail(var("consts"), 3)), data_list()))',
        "ada, accepts: finish",
    ),
    Mutant(
        'refund = constr(0, cons(consumer, tail(var("addr"))))',
        "refund = constr(0, cons(consumer, data_list(_NOTHING)))",
        "ada, accepts: finish",
    ),
    Mutant(
        'refund = constr(0, cons(consumer, tail(var("addr"))))',
        'refund = head(var("out"))',
        "ada, accepts: finish",
    ),
    Mutant(
        'return call(var("emit"), refund, amount, data(_NO_DATUM))',
        'return call(var("emit"), refund, amount, head(tail(var("out"), 2)))',
        "ada, accepts: finish",
    ),
    Mutant(
        'last_claim = _finish(sub(var("amount"), var("diff")))',
        'last_claim = _finish(var("amount"))',
        "ada, accepts: finish claiming",
    ),
    Mutant(
        'last_claim = _finish(sub(var("amount"), var("diff")))',
        'last_claim = _finish(sub(var("amount"), var("pay")))',
        "ada, accepts: finish claiming",
    ),
    Mutant(
        "expired = less_eq(expire_at,",
        "expired = less(expire_at,",
        "ada, accepts: finish expired",
    ),
    Mutant(
        '_bound(head(fields(head(var("times")))))',
        '_bound(head(tail(fields(head(var("times"))))))',
        "ada, accepts: finish expired",
    ),
    Mutant(
        'adapter = un_bytes(head(tail(var("consts"))))',
        'adapter = un_bytes(head(tail(var("consts"), 3)))',
        "ada, accepts: finish",
    ),
    Mutant(
        'choose(call(var("signed"), adapter), boolean(True), closing)',
        'choose(call(var("signed"), adapter), boolean(True), boolean(False))',
        "ada, accepts: finish expired",
    ),
    Mutant(
        'choose(call(var("signed"), adapter), boolean(True), closing)',
        "closing",
        "ada, accepts: finish",
    ),
    Mutant(
        '    amount = add(var("amount"), var("more"))',
        '    amount = var("amount")',
        "ada, accepts: top up",
    ),
    Mutant(
        'less(integer(0), var("more"))',
        'less_eq(integer(0), var("more"))',
        "ada, top up: of nothing",
    ),
    Mutant(
        'head(tail(var("consts"), 4)))))',
        'head(tail(var("consts"), 5)))))',
        "ada, accepts: close",
    ),
    Mutant(
        "datum = _inline(integer(CLOSING), closing)",
        "datum = _inline(integer(OPEN), closing)",
        "ada, accepts: close",
    ),
    Mutant(
        'upper = _bound(head(tail(fields(head(var("times"))))))',
        'upper = _bound(head(fields(head(var("times")))))',
        "ada, accepts: close",
    ),
    Mutant(
        'less(var("claimed"), var("upto"))',
        'less_eq(var("claimed"), var("upto"))',
        "ada, whole fee: take nothing",
    ),
    Mutant(
        'less_eq(var("upto"), var("cum"))',
        'less(var("upto"), var("cum"))',
        "ada, accepts: claim",
    ),
    Mutant(
        '"diff": sub(var("upto"), var("claimed"))',
        '"diff": sub(var("cum"), var("claimed"))',
        "ada, accepts: claim part",
    ),
    Mutant(
        '"diff": sub(var("upto"), var("claimed"))',
        '"diff": var("upto")',
        "ada, accepts: claim",
    ),
    Mutant(
        "integer(10000)",
        "integer(1000)",
        "ada, accepts: whole fee",
    ),
    Mutant(
        'bps = un_int(head(tail(var("consts"), 5)))',
        'bps = un_int(head(tail(var("consts"), 4)))',
        "ada, accepts: claim",
    ),
    Mutant(
        '"pay": sub(var("diff"), bounty)',
        '"pay": bounty',
        "ada, accepts: whole fee",
    ),
    Mutant(
        '"pay": sub(var("diff"), bounty)',
        '"pay": var("diff")',
        "ada, accepts: claim",
    ),
    Mutant(
        'less_eq(integer(0), var("pay"))',
        'less(integer(0), var("pay"))',
        "ada, accepts: whole fee",
    ),
    Mutant(
        'less_eq(integer(0), var("pay"))',
        'less_eq(integer(-1000000), var("pay"))',
        "ada, whole fee: fee_bps of 10001",
    ),
    Mutant(
        'b"tally/v1"',
        'b"tally/v2"',
        "ada, accepts: claim",
    ),
    Mutant(
        'big_endian(8, var("cum"))',
        'big_endian(8, var("upto"))',
        "ada, accepts: claim part",
    ),
    Mutant(
        'big_endian(8, var("cum"))',
        'big_endian(0, var("cum"))',
        "ada, accepts: claim",
    ),
    Mutant(
        'less_eq(var("owed"), var("paid"))',
        'less(var("owed"), var("paid"))',
        "ada, accepts: claim",
    ),
    Mutant(
        'less_eq(var("owed"), var("paid"))',
        'less_eq(var("paid"), var("owed"))',
        "ada, claim: payout 1, one less",
    ),
    Mutant(
        'eq_data(head(var("outs")), rebuilt), tail(var("outs"))',
        'eq_data(head(var("outs")), rebuilt), var("outs")',
        "ada, accepts: two payouts",
    ),
    Mutant(
        'choose(eq_int(var("owed"), integer(0)), var("outs"), owing)',
        "owing",
        "ada, accepts: claim",
    ),
    Mutant(
        'here = eq_bytes(un_bytes(head(var("left"))), var("key"))',
        "here = boolean(True)",
        "ada, top up: signed by the adapter",
    ),
    Mutant(
        'more = choose(here, boolean(True), call(var("again"), var("again"), tail(var("left"))))',
        "more = here",
        "ada, accepts: every step",
    ),
    Mutant(
        'choose(is_null(var("left")), boolean(False), more)',
        'choose(is_null(var("left")), boolean(True), more)',
        "ada, top up: unsigned",
    ),
    Mutant(
        'eq_int(var("stage"), integer(OPEN))',
        'less_eq(var("stage"), integer(CLOSING))',
        "ada, top up: from Closing",
    ),
    Mutant(
        'consumer = un_bytes(head(tail(var("consts"), 3)))',
        'consumer = un_bytes(head(tail(var("consts"), 1)))',
        "ada, accepts: top up",
    ),
    Mutant(
        'return choose(less(var("kind"), integer(FINISH)), with_voucher',
        'return choose(less_eq(var("kind"), integer(FINISH)), with_voucher',
        "ada, accepts: finish",
    ),
    Mutant(
        "choose(is_(TOP_UP), _top_up(build), closes)",
        "choose(is_(CLOSE), _top_up(build), closes)",
        "ada, accepts: top up",
    ),
    Mutant(
        'is_null(tail(un_map(head(var("withdrawn")))))',
        'is_null(un_map(head(var("withdrawn"))))',
        "ada, accepts: claim",
    ),
    Mutant(
        "less(integer(1), kind)",
        "less_eq(integer(1), kind)",
        "ada, certificate: 1",
    ),
    Mutant(
        "less_eq(kind, integer(3))",
        "less_eq(kind, integer(4))",
        "ada, certificate: 4",
    ),
    Mutant(
        "allowed = choose(eq_int(kind, integer(0)), boolean(True), both)",
        "allowed = both",
        "ada, certificate: 0",
    ),
    Mutant(
        '"payout": un_bytes(head(tail(var("consts"), 2)))',
        '"payout": un_bytes(head(tail(var("consts"), 1)))',
        "ada, accepts: claim",
    ),
    Mutant(
        'some = choose(eq_int(var("amount"), integer(0)), var("no_pairs"), entry)',
        "some = entry",
        "token, accepts: claim everything",
    ),
    Mutant(
        '"amount": _amount(asset, var("value"))',
        '"amount": _amount(Ada(), var("value"))',
        "token, accepts: claim",
    ),
    Mutant(
        'un_int(head(tail(var("state"))))',
        'un_int(head(tail(var("state"), 2)))',
        "ada, accepts: claim",
    ),
    Mutant(
        'eq_int(var("stage"), integer(CLOSING)), expired',
        "boolean(True), expired",
        "ada, finish expired: a third stage",
    ),
    Mutant(
        'choose(eq_int(var("owed"), integer(0)), var("outs"), owing)',
        'choose(less(var("owed"), integer(1000000)), var("outs"), owing)',
        "ada, claim a little: payout of 1, one less",
    ),
    Mutant(
        "data(u.PlutusInteger(0))",
        "data(u.PlutusInteger(1))",
        "token, accepts: top up an empty one",
    ),
    Mutant(
        'call(var("look_up"), var("policy"), tail(value), data(u.PlutusMap({})))',
        "snd(head(tail(value)))",
        "token, accepts: top up an empty one",
    ),
    Mutant(
        'call(var("look_up"), var("name"), names, data(u.PlutusInteger(0)))',
        "snd(head(names))",
        "token, accepts: top up an empty one",
    ),
]
