"""Every certificate, proposal and vote that the devnet's ledger takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cbor2

from contracts.devnet.transaction import OutRef
from tests.integration.support.devnet import (
    ADA,
    Draft,
    Party,
    Raw,
    blake2b,
    dumps,
    out,
    pay,
    ref,
    script_hash,
)
from tests.integration.support.every_script import FEE, SPENDS, UNITS, guarded
from tests.integration.support.ledger_cases import ALICE, KEY_DEPOSIT, World
from tests.integration.support.odd_cases import ACTION_DEPOSIT, DREP_DEPOSIT, POOL_DEPOSIT

Submit = Callable[[str, Draft], str]
KEEPER, VOICE, OWNER = Party("office keeper"), Party("office voice"), Party("office owner")
SCRIPT = SPENDS[3]
ANCHOR = ["https://example.com/a", b"\x01" * 32]
NO, YES, ABSTAIN = 0, 1, 2


def add_offices(world: World, submit: Submit) -> None:
    """Accounts, pools, DReps (of a key and of a script), proposals, votes, and the end of each."""
    _accounts(world, submit)
    _dreps(world, submit)
    _both(world, submit)
    actions = _proposals(world, submit)
    _votes(world, submit, actions)
    _ends(world, submit)


def _sent(world: World, certificates: list[Any], deposit: int, *signers: Party) -> Draft:
    held = 20 * ADA + max(0, deposit)
    change = held - FEE - deposit
    body = {0: [ref(world.coin(ALICE, held))], 1: [out(ALICE.raw, change)], 2: FEE, 4: certificates}
    return Draft(body, (ALICE, *signers))


def _run(world: World, draft: Draft, *pointers: tuple[int, int]) -> Draft:
    """With the script, and a redeemer for each of these."""
    told = dict.fromkeys(pointers, (0, UNITS))
    return guarded(world, draft.put(redeemers=told, witness={7: [SCRIPT]}))


def pool(relays: list[Any], metadata: Any) -> list[Any]:
    margin = cbor2.CBORTag(30, [1, 20])
    head = [3, KEEPER.vkh, blake2b(b"vrf"), 100 * ADA, 340 * ADA, margin, OWNER.stake]
    return [*head, [OWNER.vkh], relays, metadata]


def _accounts(world: World, submit: Submit) -> None:
    who = [0, OWNER.vkh]
    relays = [
        [0, 3001, b"\x7f\x00\x00\x01", None],
        [0, None, None, b"\x00" * 16],
        [1, 3001, "relay.example.com"],
        [2, "relays.example.com"],
    ]
    submit("an account", _sent(world, [[0, who]], KEY_DEPOSIT))
    registered = pool(relays, ["https://example.com/pool.json", b"\x02" * 32])
    submit("a pool with relays", _sent(world, [registered], POOL_DEPOSIT, KEEPER, OWNER))
    submit("the pool again", _sent(world, [pool([], None)], 0, KEEPER, OWNER))
    submit("stake to the pool", _sent(world, [[2, who, KEEPER.vkh]], 0, OWNER))


def _dreps(world: World, submit: Submit) -> None:
    who = [0, VOICE.vkh]
    submit("a DRep", _sent(world, [[16, who, DREP_DEPOSIT, ANCHOR]], DREP_DEPOSIT, VOICE))
    submit("a DRep's news", _sent(world, [[18, who, None]], 0, VOICE))
    script = [1, script_hash(SCRIPT)]
    draft = _sent(world, [[16, script, DREP_DEPOSIT, None]], DREP_DEPOSIT)
    submit("a script as DRep", _run(world, draft, (2, 0)))
    submit("a script's news", _run(world, _sent(world, [[18, script, ANCHOR]], 0), (2, 0)))


def _both(world: World, submit: Submit) -> None:
    """Certificates that do two or three things at once, each for an account of its own; and
    Shelley's own end of one.
    """
    voice, script = [0, VOICE.vkh], [1, script_hash(SCRIPT)]
    made: dict[str, Callable[[Any], tuple[list[Any], int]]] = {
        "registered": lambda who: ([7, who, KEY_DEPOSIT], KEY_DEPOSIT),
        "registered, stake": lambda who: ([11, who, KEEPER.vkh, KEY_DEPOSIT], KEY_DEPOSIT),
        "registered, vote": lambda who: ([12, who, voice, KEY_DEPOSIT], KEY_DEPOSIT),
        "registered, both": lambda who: ([13, who, KEEPER.vkh, script, KEY_DEPOSIT], KEY_DEPOSIT),
        "stake": lambda who: ([2, who, KEEPER.vkh], 0),
        "vote": lambda who: ([9, who, script], 0),
        "both": lambda who: ([10, who, KEEPER.vkh, [3]], 0),
    }
    for name, build in made.items():
        party = Party(f"office {name}")
        who = [0, party.vkh]
        if not name.startswith("registered"):
            world.devnet.submit(_sent(world, [[0, who]], KEY_DEPOSIT).signed())
        certificate, deposit = build(who)
        submit(f"account: {name}", _sent(world, [certificate], deposit, party))
        submit(f"account: {name}, over", _sent(world, [[1, who]], -KEY_DEPOSIT, party))
    many = [Party(f"office {number}") for number in range(3)]
    several = [[7, [0, one.vkh], KEY_DEPOSIT] for one in many]
    submit("accounts: several", _sent(world, several, 3 * KEY_DEPOSIT, *many))


def _proposals(world: World, submit: Submit) -> list[OutRef]:
    guard = script_hash(SCRIPT)
    actions: dict[str, list[Any]] = {
        "information": [6],
        "no confidence": [3, None],
        "a committee": [4, None, [], {(0, VOICE.vkh): 100}, cbor2.CBORTag(30, [2, 3])],
        "a constitution": [5, None, [ANCHOR, None]],
        "a hard fork": [1, None, [11, 0]],
        "parameters": [0, None, {0: 45}, None],
        "the treasury": [2, {OWNER.stake: ADA}, None],
        "parameters, guarded": [0, None, {0: 45}, guard],
        "the treasury, guarded": [2, {OWNER.stake: ADA}, guard],
    }
    made: list[OutRef] = []
    for name, action in actions.items():
        held = 20 * ADA + ACTION_DEPOSIT
        draft = pay(world.coin(ALICE, held), ALICE, held, [], fee=FEE + ACTION_DEPOSIT)
        draft = draft.set(2, FEE).set(20, [[ACTION_DEPOSIT, OWNER.stake, action, ANCHOR]])
        if name.endswith("guarded"):
            draft = _run(world, draft, (5, 0))
        made.append(OutRef(submit(f"proposal: {name}", draft), 0))
    return made


def _votes(world: World, submit: Submit, actions: list[OutRef]) -> None:
    """By a pool, a DRep and a script, in one transaction: redeemers point at voters in the ledger's
    order.
    """
    script = script_hash(SCRIPT)
    voters = [([4, KEEPER.vkh], NO), ([2, VOICE.vkh], YES), ([3, script], ABSTAIN)]
    info = actions[0]
    votes = b"".join(
        dumps(voter) + b"\xa1" + dumps(ref(info)) + dumps([said, None if said else ANCHOR])
        for voter, said in voters
    )
    draft = world.payment().shift(-FEE).put(signers=(ALICE, KEEPER, VOICE))
    draft = draft.set(19, Raw(b"\xa3" + votes))
    submit("votes", _run(world, draft.set(2, FEE).output(1, draft.body[1][1][1] + 200_000), (4, 0)))


def _ends(world: World, submit: Submit) -> None:
    donated = world.payment()
    change = donated.body[1][1][1]
    submit("a donation", donated.output(1, change - ADA).set(22, ADA))
    submit("a pool's end", _sent(world, [[4, KEEPER.vkh, 2]], 0, KEEPER))
    submit("a DRep's end", _sent(world, [[17, [0, VOICE.vkh], DREP_DEPOSIT]], -DREP_DEPOSIT, VOICE))
    draft = _sent(world, [[17, [1, script_hash(SCRIPT)], DREP_DEPOSIT]], -DREP_DEPOSIT)
    submit("a script's end as DRep", _run(world, draft, (2, 0)))
