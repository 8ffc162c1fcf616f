"""The channel's two scripts, as an auditor should read them.

``settle`` runs once a transaction, as a withdrawal.  It walks the inputs in ledger order; every
script-locked input is a channel and takes one step of the redeemer; every step consumes exactly
one output by position, and a run of claims for one payout address consumes one more at its end.
Nothing is searched for: each output is rebuilt from the input and compared whole.

``stub`` locks the channels and only demands that ``settle`` runs.

Guards carry the numbers of ``contracts/README.md``.  What is refused without a number (a list too
short, a datum of another shape, an infinite bound, a signature of the wrong length) is refused by a
builtin that fails, and is listed there too.

Over 400 lines: an auditor reads the whole script here, from top to bottom.
"""

from __future__ import annotations

from dataclasses import dataclass

from uplc import ast as u

from contracts.channel.terms import (
    Build,
    Fail,
    Term,
    add,
    append,
    big_endian,
    blake2b_224,
    boolean,
    byte_string,
    call,
    choose,
    choose_once,
    cons,
    constr,
    data,
    data_int,
    data_list,
    data_map,
    div,
    ed25519,
    eq_bytes,
    eq_data,
    eq_int,
    fields,
    fn,
    forced,
    fst,
    head,
    integer,
    is_null,
    less,
    less_eq,
    let,
    mul,
    no_pairs,
    pair,
    pick,
    prelude,
    serialise,
    snd,
    sub,
    tag,
    tail,
    together,
    un_bytes,
    un_constr,
    un_int,
    un_list,
    un_map,
    unit,
    var,
)

# Redeemer of settle: a list of steps.
CLAIM, FINISH_CLAIMING, FINISH, TOP_UP, CLOSE = range(5)
OPEN, CLOSING = range(2)
VOUCHER_TAG = b"tally/v1"

# Guards.
PURPOSE = 1
CERTIFICATE = 2
NO_MINT = 3
ONE_WITHDRAWAL = 4
STEPS_USED_UP = 5
TAKE_GROWS = 6
TAKE_WITHIN_VOUCHER = 7
VOUCHER_SIGNED = 8
PAY_NOT_NEGATIVE = 9
EXPECTED_OUTPUT = 10
PAYOUT_ADDRESS = 11
PAYOUT_AMOUNT = 12
PAYOUT_SHAPE = 13
CONSUMER_SIGNED = 14
STAGE_OPEN = 15
TOP_UP_POSITIVE = 16
KNOWN_STEP = 17
MAY_FINISH = 18

_NOTHING = u.PlutusConstr(1, [])
_NO_DATUM = u.PlutusConstr(0, [])
_EMPTY = u.PlutusByteString(b"")


@dataclass(frozen=True)
class Token:
    """Settle in a native token: its policy and name are the script's two parameters."""


@dataclass(frozen=True)
class Ada:
    """Settle in lovelace."""


Asset = Ada | Token


# --- values ---------------------------------------------------------------------------------
def _amount(asset: Asset, value: Term) -> Term:
    """How much of the asset *value* (its list of pairs) holds; other tokens are not counted."""
    if isinstance(asset, Ada):
        return un_int(snd(head(un_map(snd(head(value))))))
    names = un_map(call(var("look_up"), var("policy"), tail(value), data(u.PlutusMap({}))))
    return un_int(call(var("look_up"), var("name"), names, data(u.PlutusInteger(0))))


def _look_up() -> Term:
    """key pairs default -> the value beside *key*, or *default*."""
    this = head(var("pairs"))
    rest = call(var("again"), var("again"), tail(var("pairs")))
    found = choose(eq_data(fst(this), var("key")), snd(this), rest)
    loop = fn("again pairs", choose(is_null(var("pairs")), var("default"), found))
    return fn("key from default", let({"loop": loop}, call(var("loop"), var("loop"), var("from"))))


def _output(asset: Asset) -> Term:
    """address ada amount datum -> an output of the asset alone, without reference script.

    For ADA *ada* is absent.  For a token it is the lovelace entry to carry over, and an amount
    of 0 leaves no entry, as in the ledger.
    """
    names = "address amount datum"
    if isinstance(asset, Ada):
        amount = cons(pair(data(_EMPTY), data_int(var("amount"))), var("no_pairs"))
        pairs = cons(pair(data(_EMPTY), data_map(amount)), var("no_pairs"))
    else:
        names = "address ada amount datum"
        amount = cons(pair(var("name"), data_int(var("amount"))), var("no_pairs"))
        entry = cons(pair(var("policy"), data_map(amount)), var("no_pairs"))
        some = choose(eq_int(var("amount"), integer(0)), var("no_pairs"), entry)
        pairs = cons(var("ada"), some)
    parts = cons(var("address"), cons(data_map(pairs), cons(var("datum"), data_list(_NOTHING))))
    return fn(names, constr(0, parts))


def _make(asset: Asset, address: Term, value: Term, amount: Term, datum: Term) -> Term:
    """An output built from parts; *value* is the list of pairs whose lovelace a token keeps."""
    ada = () if isinstance(asset, Ada) else (head(value),)
    return call(var("output"), address, *ada, amount, datum)


# --- helpers of the walk --------------------------------------------------------------------
def _flush(asset: Asset, build: Build) -> Term:
    """outs payee owed -> the outputs left once the run's payout is consumed."""
    rebuilt = _make(asset, var("address"), var("value"), var("paid"), data(_NO_DATUM))
    plain = build.require(PAYOUT_SHAPE, eq_data(head(var("outs")), rebuilt), tail(var("outs")))
    enough = build.require(PAYOUT_AMOUNT, less_eq(var("owed"), var("paid")), plain)
    hashed = blake2b_224(serialise(var("address")))
    theirs = build.require(PAYOUT_ADDRESS, eq_bytes(hashed, var("payee")), enough)
    output = {"address": head(var("out")), "value": un_map(head(tail(var("out"))))}
    take = together(output, let({"paid": _amount(asset, var("value"))}, theirs))
    owing = let({"out": fields(head(var("outs")))}, take)
    return fn("outs payee owed", choose(eq_int(var("owed"), integer(0)), var("outs"), owing))


def _signed() -> Term:
    """key -> whether its hash is among the signatories."""
    here = eq_bytes(un_bytes(head(var("left"))), var("key"))
    more = choose(here, boolean(True), call(var("again"), var("again"), tail(var("left"))))
    loop = fn("again left", choose(is_null(var("left")), boolean(False), more))
    signatories = un_list(head(tail(var("times"))))
    return fn("key", let({"loop": loop}, call(var("loop"), var("loop"), signatories)))


def _bound(which: Term) -> Term:
    """The finite time (ms) in a lower or upper bound; fails on an infinite one."""
    return un_int(head(fields(head(fields(which)))))


# --- one channel ----------------------------------------------------------------------------
# Names in scope for a step (bound by ``_channel``):
#   again ins steps outs payee owed   the walk: what is left, and the open run
#   out addr                          the input's output (its fields) and its address (fields)
#   kind args                         the step
#   value amount                      the input's value (pairs) and how much of the asset it holds
#   stage state consts claimed        its datum: constructor, fields, Consts, claimed
#   payout                            Consts' payout
#   emit                              consumes one output and walks on


def _emit(asset: Asset, build: Build) -> Term:
    """address amount datum payee outs owed -> the walk goes on after one expected output."""
    expected = _make(asset, var("address"), var("value"), var("amount"), var("datum"))
    on = call(
        var("again"),
        var("again"),
        tail(var("ins")),
        tail(var("steps")),
        tail(var("outs")),
        var("payee"),
        var("owed"),
    )
    condition = eq_data(head(var("outs")), expected)
    return fn("address amount datum payee outs owed", build.require(EXPECTED_OUTPUT, condition, on))


def _inline(stage: Term, fields_: Term) -> Term:
    """An inline datum."""
    return constr(2, cons(constr(stage, fields_), data_list()))


def _closed_run() -> tuple[Term, ...]:
    """payee outs owed once the open run is flushed and none is open."""
    flushed = call(var("flush"), var("outs"), var("payee"), var("owed"))
    return byte_string(b""), flushed, integer(0)


def _taking(build: Build, then: Term) -> Term:
    """Bind ``diff`` and ``pay`` by a voucher of this channel, under guards 6 to 9.

    The step carries [cum, take_to, signature]; the key signs "tally/v1" and cum in 8 bytes.
    """
    voucher = {
        "cum": un_int(head(var("args"))),
        "more": tail(var("args")),
        "upto": un_int(head(var("more"))),
    }
    message = append(byte_string(VOUCHER_TAG), big_endian(8, var("cum")))
    signature = un_bytes(head(tail(var("more"))))
    signed = ed25519(un_bytes(head(var("consts"))), message, signature)

    bps = un_int(head(tail(var("consts"), 5)))
    bounty = div(mul(var("diff"), bps), integer(10000))
    shares = {"diff": sub(var("upto"), var("claimed")), "pay": sub(var("diff"), bounty)}

    paid = build.require(PAY_NOT_NEGATIVE, less_eq(integer(0), var("pay")), then)
    genuine = build.require(VOUCHER_SIGNED, signed, let(shares, paid))
    within = build.require(TAKE_WITHIN_VOUCHER, less_eq(var("upto"), var("cum")), genuine)
    return let(voucher, build.require(TAKE_GROWS, less(var("claimed"), var("upto")), within))


def _in_run(step: Term, pay: Term) -> Term:
    """*step* is ``emit`` applied to address, amount and datum; the step belongs to a run."""
    same = call(var("step"), var("payout"), var("outs"), add(var("owed"), pay))
    flushed = call(var("flush"), var("outs"), var("payee"), var("owed"))
    other = call(var("step"), var("payout"), flushed, pay)
    return let({"step": step}, choose(eq_bytes(var("payout"), var("payee")), same, other))


def _claim() -> Term:
    """Claim: the datum with claimed = take_to, whichever stage it is in; the value less diff."""
    state = cons(head(var("state")), cons(data_int(var("upto")), tail(var("state"), 2)))
    amount = sub(var("amount"), var("diff"))
    return call(var("emit"), head(var("out")), amount, _inline(var("stage"), state))


def _finish(amount: Term) -> Term:
    """Finish: the exact remainder to the consumer's key with the channel's own stake part."""
    consumer = constr(0, cons(head(tail(var("consts"), 3)), data_list()))
    refund = constr(0, cons(consumer, tail(var("addr"))))
    return call(var("emit"), refund, amount, data(_NO_DATUM))


def _may_finish() -> Term:
    """The adapter signed, or the channel is Closing and the lower bound has reached expire_at."""
    expire_at = un_int(head(tail(var("state"), 2)))
    expired = less_eq(expire_at, _bound(head(fields(head(var("times"))))))
    closing = choose(eq_int(var("stage"), integer(CLOSING)), expired, boolean(False))
    adapter = un_bytes(head(tail(var("consts"))))
    return choose(call(var("signed"), adapter), boolean(True), closing)


def _top_up(build: Build) -> Term:
    """TopUp: the amount grows, all else is equal."""
    amount = add(var("amount"), var("more"))
    on = call(var("emit"), head(var("out")), amount, head(tail(var("out"), 2)), *_closed_run())
    positive = build.require(TOP_UP_POSITIVE, less(integer(0), var("more")), on)
    return let({"more": un_int(head(var("args")))}, positive)


def _close() -> Term:
    """Close: Closing, with expire_at the upper bound and close_period; the value is unchanged."""
    upper = _bound(head(tail(fields(head(var("times"))))))
    expire_at = data_int(add(upper, un_int(head(tail(var("consts"), 4)))))
    closing = cons(head(var("state")), cons(head(tail(var("state"))), cons(expire_at, data_list())))
    datum = _inline(integer(CLOSING), closing)
    return call(var("emit"), head(var("out")), var("amount"), datum, *_closed_run())


def _step(build: Build) -> Term:
    """Dispatch on the step's constructor."""

    def is_(constructor: int) -> Term:
        return eq_int(var("kind"), integer(constructor))

    may_finish = _may_finish()
    last_claim = _finish(sub(var("amount"), var("diff")))
    claims = choose(is_(CLAIM), _claim(), build.require(MAY_FINISH, may_finish, last_claim))
    with_voucher = _taking(build, _in_run(claims, var("pay")))

    finishes = build.require(MAY_FINISH, may_finish, _in_run(_finish(var("amount")), integer(0)))

    closes = build.require(KNOWN_STEP, is_(CLOSE), _close())
    tops_up_or_closes = choose(is_(TOP_UP), _top_up(build), closes)
    from_open = build.require(STAGE_OPEN, eq_int(var("stage"), integer(OPEN)), tops_up_or_closes)
    consumer = un_bytes(head(tail(var("consts"), 3)))
    by_consumer = build.require(CONSUMER_SIGNED, call(var("signed"), consumer), from_open)

    without_voucher = choose(is_(FINISH), finishes, by_consumer)
    return choose(less(var("kind"), integer(FINISH)), with_voucher, without_voucher)


def _channel(asset: Asset, build: Build) -> Term:
    """One script-locked input: read it and its step, then take the step."""
    read = {
        "step": un_constr(head(var("steps"))),
        "value": un_map(head(tail(var("out")))),
        "datum": un_constr(head(fields(head(tail(var("out"), 2))))),
    }
    opened = {
        "kind": fst(var("step")),
        "args": snd(var("step")),
        "amount": _amount(asset, var("value")),
        "stage": fst(var("datum")),
        "state": snd(var("datum")),
    }
    closer = {
        "consts": un_list(head(var("state"))),
        "claimed": un_int(head(tail(var("state")))),
        "emit": _emit(asset, build),
    }
    payout = {"payout": un_bytes(head(tail(var("consts"), 2)))}
    body = together(closer, let(payout, _step(build)))
    return together(read, together(opened, body))


# --- the transaction ------------------------------------------------------------------------
def _walk(asset: Asset, build: Build) -> Term:
    """again ins steps outs payee owed -> unit, once every input has had its say."""
    skip = call(
        var("again"),
        var("again"),
        tail(var("ins")),
        var("steps"),
        var("outs"),
        var("payee"),
        var("owed"),
    )
    locked = choose(eq_int(tag(head(var("addr"))), integer(0)), skip, _channel(asset, build))
    read = {
        "out": fields(head(tail(fields(head(var("ins")))))),
        "addr": fields(head(var("out"))),
    }
    flushed = call(var("flush"), var("outs"), var("payee"), var("owed"))
    done = build.require(STEPS_USED_UP, is_null(var("steps")), let({"_": flushed}, unit()))
    return fn(
        "again ins steps outs payee owed", choose(is_null(var("ins")), done, let(read, locked))
    )


def _withdrawing(asset: Asset, build: Build) -> Term:
    """The whole transaction.  *context* is [transaction, redeemer, purpose]."""
    transaction = {
        "tx": fields(head(var("context"))),
        "minted": tail(var("tx"), 4),
        "withdrawn": tail(var("minted"), 2),
        "times": tail(var("withdrawn")),  # validity range, signatories, ...
        "output": _output(asset),
        "signed": _signed(),
        "flush": _flush(asset, build),
        "walk": _walk(asset, build),
    }
    if isinstance(asset, Token):
        transaction = {"look_up": _look_up(), **transaction}
    walk = call(
        var("walk"),
        var("walk"),
        un_list(head(var("tx"))),
        un_list(head(tail(var("context")))),
        un_list(head(tail(var("tx"), 2))),
        byte_string(b""),
        integer(0),
    )
    guarded = build.require(
        NO_MINT,
        is_null(un_map(head(var("minted")))),
        build.require(ONE_WITHDRAWAL, is_null(tail(un_map(head(var("withdrawn"))))), walk),
    )
    return let(transaction, guarded)


def _certifying(build: Build) -> Term:
    """Registration (0), delegation (2) or both (3); above all never deregistration (1)."""
    kind = var("kind")
    both = pick(less_eq(kind, integer(3)), less(integer(1), kind), boolean(False))
    allowed = choose(eq_int(kind, integer(0)), boolean(True), both)
    cert = tag(head(tail(snd(var("purpose")))))
    return let({"kind": cert}, build.require(CERTIFICATE, allowed, unit()))


def settle(asset: Asset, build: Build = Build()) -> Term:
    """The withdraw-zero validator: a function of the script context."""
    purpose = {
        "context": fields(var("ctx")),
        "purpose": un_constr(head(tail(var("context"), 2))),
        "kind": fst(var("purpose")),
    }
    other = build.require(PURPOSE, eq_int(var("kind"), integer(3)), _certifying(build))
    chosen = choose(eq_int(var("kind"), integer(2)), _withdrawing(asset, build), other)
    # Bound outermost, so that the program ends with it: see contracts/blueprint.py.
    script = let({"no_pairs": no_pairs()}, prelude(fn("ctx", let(purpose, chosen))))
    return fn("policy name", script) if isinstance(asset, Token) else script


def stub(settle_hash: bytes) -> Term:
    """The channel's lock: the first withdrawal of the transaction is by the script *settle_hash*.

    It runs once for every channel, so what is used seldom is forced where it stands.
    """

    def first(x: Term) -> Term:
        return call(forced("head"), x)

    def parts(x: Term) -> Term:
        return call(forced("snd"), un_constr(x))

    settle_credential = data(u.PlutusConstr(1, [u.PlutusByteString(settle_hash)]))
    withdrawals = un_map(first(tail(parts(first(parts(var("ctx")))), 6)))
    by_settle = eq_data(call(forced("fst"), first(withdrawals)), settle_credential)
    return fn("ctx", let({"tail": forced("tail")}, choose_once(by_settle, unit(), Fail())))
