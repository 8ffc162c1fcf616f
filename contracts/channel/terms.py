"""Thin names over pluthon: the few combinators that the channel's scripts are written in.

Every function returns a pluthon term and maps one to one to UPLC; nothing is optimised behind
the reader's back, so the committed bytes are exactly what the source says.  Two remarks on cost,
since each machine step is paid for by every claim:

* a polymorphic builtin needs a ``force`` at each use, so ``prelude`` forces each once;
* an application to three or more arguments, or three or more bindings that do not depend on
  each other, is cheaper as ``case (constr 0 a b c) f`` (Plutus 1.1.0) than as nested ``[f a]``.

pluthon 1.3.5 wires ``QuotientInteger`` to multiplication and its ``Error()`` is a lambda, so this
module names the builtins it uses itself; each is tested against a plain Python reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pluthon import pluthon_ast as p
from uplc import ast as u

Term = p.AST
F = u.BuiltInFun


@dataclass
class Case(p.AST):
    """``case (constr 0 args...) f``: *f* applied to all of *args* at once."""

    f: p.AST
    args: Sequence[p.AST]

    def compile(self) -> u.AST:
        return u.Case(u.Constr(0, [a.compile() for a in self.args]), [self.f.compile()])

    def dumps(self) -> str:
        return f"({self.f.dumps()} {' '.join(a.dumps() for a in self.args)})"


@dataclass
class Fail(p.AST):
    """The bare ``error`` term (pluthon's own is a lambda that returns instead of failing)."""

    def compile(self) -> u.AST:
        return u.Error()

    def dumps(self) -> str:
        return "fail"


def var(name: str) -> Term:
    return p.Var(name)


def call(f: Term, *args: Term) -> Term:
    """*f* applied to *args*."""
    return Case(f, args) if len(args) > 2 else p.Apply(f, *args)


def fn(names: str, body: Term) -> Term:
    """A function of the space-separated *names*."""
    return p.Lambda(names.split(), body)


def let(bindings: Mapping[str, Term], body: Term) -> Term:
    """*bindings* one after another: each sees those before it."""
    return p.Let(list(bindings.items()), body)


def together(bindings: Mapping[str, Term], body: Term) -> Term:
    """*bindings* at once: none sees another.  Cheaper than :func:`let` for three or more."""
    return call(p.Lambda(list(bindings), body), *bindings.values())


# --- builtins -------------------------------------------------------------------------------
_FORCED = {
    "ite": (F.IfThenElse, 1),
    "head": (F.HeadList, 1),
    "tail": (F.TailList, 1),
    "null": (F.NullList, 1),
    "cons": (F.MkCons, 1),
    "fst": (F.FstPair, 2),
    "snd": (F.SndPair, 2),
}


def forced(name: str) -> Term:
    """A polymorphic builtin, forced where it stands."""
    builtin, forces = _FORCED[name]
    term: Term = p.BuiltIn(builtin)
    for _ in range(forces):
        term = p.Force(term)
    return term


def prelude(body: Term) -> Term:
    """*body* with the polymorphic builtins forced once and bound to their names."""
    return together({name: forced(name) for name in _FORCED}, body)


def _builtin(f: F, *args: Term) -> Term:
    return call(p.BuiltIn(f), *args)


def head(x: Term) -> Term:
    return call(var("head"), x)


def tail(x: Term, times: int = 1) -> Term:
    for _ in range(times):
        x = call(var("tail"), x)
    return x


def is_null(x: Term) -> Term:
    return call(var("null"), x)


def cons(x: Term, xs: Term) -> Term:
    return call(var("cons"), x, xs)


def fst(x: Term) -> Term:
    return call(var("fst"), x)


def snd(x: Term) -> Term:
    return call(var("snd"), x)


def un_constr(x: Term) -> Term:
    return _builtin(F.UnConstrData, x)


def fields(x: Term) -> Term:
    """The fields of a constructor, whatever its tag."""
    return snd(un_constr(x))


def tag(x: Term) -> Term:
    return fst(un_constr(x))


def un_list(x: Term) -> Term:
    return _builtin(F.UnListData, x)


def un_map(x: Term) -> Term:
    return _builtin(F.UnMapData, x)


def un_int(x: Term) -> Term:
    return _builtin(F.UnIData, x)


def un_bytes(x: Term) -> Term:
    return _builtin(F.UnBData, x)


def data_int(x: Term) -> Term:
    return _builtin(F.IData, x)


def data_map(x: Term) -> Term:
    return _builtin(F.MapData, x)


def pair(a: Term, b: Term) -> Term:
    return _builtin(F.MkPairData, a, b)


def constr(tag_: int | Term, fields_: Term) -> Term:
    return _builtin(F.ConstrData, integer(tag_) if isinstance(tag_, int) else tag_, fields_)


def add(a: Term, b: Term) -> Term:
    return _builtin(F.AddInteger, a, b)


def sub(a: Term, b: Term) -> Term:
    return _builtin(F.SubtractInteger, a, b)


def mul(a: Term, b: Term) -> Term:
    return _builtin(F.MultiplyInteger, a, b)


def div(a: Term, b: Term) -> Term:
    """Rounds towards minus infinity."""
    return _builtin(F.DivideInteger, a, b)


def eq_int(a: Term, b: Term) -> Term:
    return _builtin(F.EqualsInteger, a, b)


def less(a: Term, b: Term) -> Term:
    return _builtin(F.LessThanInteger, a, b)


def less_eq(a: Term, b: Term) -> Term:
    return _builtin(F.LessThanEqualsInteger, a, b)


def eq_bytes(a: Term, b: Term) -> Term:
    return _builtin(F.EqualsByteString, a, b)


def eq_data(a: Term, b: Term) -> Term:
    return _builtin(F.EqualsData, a, b)


def append(a: Term, b: Term) -> Term:
    return _builtin(F.AppendByteString, a, b)


def big_endian(width: int, n: Term) -> Term:
    """*n* as exactly *width* bytes; fails when negative or too wide."""
    return _builtin(F.IntegerToByteString, p.Bool(True), integer(width), n)


def ed25519(key: Term, message: Term, signature: Term) -> Term:
    """Fails unless the key has 32 bytes and the signature 64."""
    return _builtin(F.VerifyEd25519Signature, key, message, signature)


def blake2b_224(x: Term) -> Term:
    return _builtin(F.Blake2b_224, x)


def serialise(x: Term) -> Term:
    return _builtin(F.SerialiseData, x)


# --- constants ------------------------------------------------------------------------------
def integer(n: int) -> Term:
    return p.Integer(n)


def byte_string(b: bytes) -> Term:
    return p.ByteString(b)


def boolean(b: bool) -> Term:
    return p.Bool(b)


def unit() -> Term:
    return p.Unit()


def data(d: u.PlutusData) -> Term:
    """A constant of type data."""
    return p.UPLCConstant(d)


def data_list(*items: u.PlutusData) -> Term:
    """A constant list of data (may be empty)."""
    return p.UPLCConstant(u.BuiltinList(list(items), u.PlutusData()))


def no_pairs() -> Term:
    return p.UPLCConstant(u.BuiltinList([], u.BuiltinPair(u.PlutusData(), u.PlutusData())))


# --- control --------------------------------------------------------------------------------
def choose(condition: Term, yes: Term, no: Term) -> Term:
    """Lazy if-then-else."""
    return p.Force(call(var("ite"), condition, p.Delay(yes), p.Delay(no)))


def choose_once(condition: Term, yes: Term, no: Term) -> Term:
    """:func:`choose` outside a prelude."""
    return p.Force(call(forced("ite"), condition, p.Delay(yes), p.Delay(no)))


def pick(condition: Term, yes: Term, no: Term) -> Term:
    """Strict if-then-else: both sides are evaluated (use it on variables and constants)."""
    return call(var("ite"), condition, yes, no)


@dataclass(frozen=True)
class Build:
    """How to compile: the deployed bytes by default.

    ``traces``: a refusal by a numbered guard leaves its two-digit code in the log.
    ``drop``: guards left out, for the tests that show what each one is for.
    """

    traces: bool = False
    drop: frozenset[int] = frozenset()

    def require(self, guard: int, condition: Term, then: Term) -> Term:
        """*then*, or the script fails at *guard*."""
        if guard in self.drop:
            return then
        failure: Term = Fail()
        if self.traces:
            trace = p.Apply(p.Force(p.BuiltIn(F.Trace)), p.Text(f"{guard:02}"), p.Delay(Fail()))
            failure = p.Force(trace)
        return choose(condition, then, failure)
