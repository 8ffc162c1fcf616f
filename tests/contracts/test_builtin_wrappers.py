"""Each wrapper of ``terms.py`` against a plain Python reference: pluthon 1.3.5 wires one builtin
to another (``QuotientInteger`` multiplies), so none is trusted by its name."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

import cbor2
import pytest
import uplc
from nacl.signing import SigningKey
from pluthon import pluthon_ast as p
from uplc import ast as u

from contracts.channel import terms as t
from tests.contracts.support.context import integer, octets

D = u.PlutusConstr


def value(term: t.Term) -> object:
    """What *term* evaluates to, through flat and back; None when it fails."""
    program = uplc.unflatten(uplc.flatten(p.Program((1, 1, 0), t.prelude(term)).compile()))
    result = uplc.eval(program).result
    return None if isinstance(result, Exception) else result


def n(x: int) -> t.Term:
    return t.integer(x)


INTEGERS: dict[str, tuple[Callable[[t.Term, t.Term], t.Term], Callable[[int, int], int | bool]]] = {
    "add": (t.add, lambda a, b: a + b),
    "sub": (t.sub, lambda a, b: a - b),
    "mul": (t.mul, lambda a, b: a * b),
    "div": (t.div, lambda a, b: a // b),
    "eq_int": (t.eq_int, lambda a, b: a == b),
    "less": (t.less, lambda a, b: a < b),
    "less_eq": (t.less_eq, lambda a, b: a <= b),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str) -> None:
    term, reference = INTEGERS[name]
    rng = random.Random(name)
    pairs = [(7, 2), (-7, 2), (7, -2), (-7, -2), (0, 5), (5, 5), (10**20, 3)]
    pairs += [(rng.randint(-(10**12), 10**12), rng.randint(1, 10**6)) for _ in range(10)]
    for a, b in pairs:
        expected = reference(a, b)
        wanted = (
            u.BuiltinBool(expected) if isinstance(expected, bool) else u.BuiltinInteger(expected)
        )
        got = value(term(n(a), n(b)))
        assert repr(got) == repr(wanted), (a, b)


def test_division_by_zero_fails() -> None:
    assert value(t.div(n(1), n(0))) is None


def test_bytes() -> None:
    assert value(t.append(t.byte_string(b"ab"), t.byte_string(b"cd"))) == u.BuiltinByteString(
        b"abcd"
    )
    for a, b in ((b"a", b"a"), (b"a", b"b"), (b"", b"a")):
        assert repr(value(t.eq_bytes(t.byte_string(a), t.byte_string(b)))) == repr(
            u.BuiltinBool(a == b)
        )
    digest = hashlib.blake2b(b"tally", digest_size=28).digest()
    assert value(t.blake2b_224(t.byte_string(b"tally"))) == u.BuiltinByteString(digest)
    for x in (0, 1, 255, 2**63, 2**64 - 1):
        assert value(t.big_endian(8, n(x))) == u.BuiltinByteString(x.to_bytes(8, "big"))
    assert value(t.big_endian(8, n(2**64))) is None
    assert value(t.big_endian(8, n(-1))) is None


def test_signatures() -> None:
    key = SigningKey(bytes(range(32)))
    good, vk = key.sign(b"m").signature, bytes(key.verify_key)

    def verdict(key_: bytes, message: bytes, signature: bytes) -> object:
        return value(
            t.ed25519(t.byte_string(key_), t.byte_string(message), t.byte_string(signature))
        )

    assert repr(verdict(vk, b"m", good)) == repr(u.BuiltinBool(True))
    assert repr(verdict(vk, b"n", good)) == repr(u.BuiltinBool(False))
    assert verdict(vk[:31], b"m", good) is None
    assert verdict(vk, b"m", good + b"\0") is None


def test_data() -> None:
    three = D(3, [integer(1), octets(b"x")])
    assert repr(value(t.tag(t.data(three)))) == repr(u.BuiltinInteger(3))
    assert value(t.head(t.fields(t.data(three)))) == integer(1)
    assert value(t.head(t.tail(t.fields(t.data(three))))) == octets(b"x")
    assert value(t.head(t.tail(t.fields(t.data(three)), 2))) is None
    assert repr(value(t.is_null(t.tail(t.fields(t.data(three)), 2)))) == repr(u.BuiltinBool(True))
    assert value(t.constr(3, t.cons(t.data(integer(1)), t.data_list(octets(b"x"))))) == three
    assert value(t.data_int(n(5))) == integer(5)
    assert repr(value(t.un_int(t.data(integer(5))))) == repr(u.BuiltinInteger(5))
    assert value(t.un_int(t.data(octets(b"")))) is None
    assert value(t.un_bytes(t.data(octets(b"x")))) == u.BuiltinByteString(b"x")
    pairs = t.cons(t.pair(t.data(octets(b"")), t.data(integer(1))), t.no_pairs())
    assert value(t.data_map(pairs)) == u.PlutusMap({octets(b""): integer(1)})
    assert value(t.snd(t.head(t.un_map(t.data_map(pairs))))) == integer(1)
    assert value(t.fst(t.head(t.un_map(t.data_map(pairs))))) == octets(b"")
    assert repr(value(t.eq_data(t.data(three), t.data(three)))) == repr(u.BuiltinBool(True))
    assert repr(value(t.eq_data(t.data(three), t.data(D(3, [integer(1)]))))) == repr(
        u.BuiltinBool(False)
    )
    assert value(t.head(t.un_list(t.data(u.PlutusList([integer(9)]))))) == integer(9)


def test_serialise_is_the_twins_encoding() -> None:
    from tests.contracts.support.scenes import address_data, provider

    for k in range(4):
        got = value(t.serialise(t.data(address_data(provider(k)))))
        assert got == u.BuiltinByteString(provider(k).plutus())
        cbor2.loads(provider(k).plutus())


def test_control() -> None:
    yes, no, fail = t.boolean(True), t.boolean(False), t.Fail()
    assert repr(value(t.choose(yes, n(1), fail))) == repr(u.BuiltinInteger(1))
    assert repr(value(t.choose(no, fail, n(2)))) == repr(u.BuiltinInteger(2))
    assert repr(value(t.choose_once(no, fail, n(2)))) == repr(u.BuiltinInteger(2))
    assert repr(value(t.pick(yes, n(1), n(2)))) == repr(u.BuiltinInteger(1))
    assert value(fail) is None
    # Bindings: in order, and all at once; an argument list keeps its order either way.
    three = t.fn("a b c", t.sub(t.var("a"), t.mul(t.var("b"), t.var("c"))))
    assert repr(value(t.call(three, n(10), n(2), n(3)))) == repr(u.BuiltinInteger(4))
    two = t.fn("a b", t.sub(t.var("a"), t.var("b")))
    assert repr(value(t.call(two, n(10), n(2)))) == repr(u.BuiltinInteger(8))
    body = t.sub(t.var("x"), t.sub(t.var("y"), t.var("z")))
    assert repr(value(t.together({"x": n(9), "y": n(5), "z": n(1)}, body))) == repr(
        u.BuiltinInteger(5)
    )
    assert repr(value(t.let({"x": n(9), "y": t.var("x")}, t.var("y")))) == repr(u.BuiltinInteger(9))


def test_require() -> None:
    yes, no = t.boolean(True), t.boolean(False)
    assert repr(value(t.Build().require(7, yes, n(1)))) == repr(u.BuiltinInteger(1))
    assert value(t.Build().require(7, no, n(1))) is None
    assert repr(value(t.Build(drop=frozenset({7})).require(7, no, n(1)))) == repr(
        u.BuiltinInteger(1)
    )
    traced = p.Program((1, 1, 0), t.prelude(t.Build(traces=True).require(7, no, n(1)))).compile()
    assert uplc.eval(traced).logs == ["07"]
