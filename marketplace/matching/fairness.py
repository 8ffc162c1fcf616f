"""Who is next: a queue for jobs that do not fit yet, shared fairly between consumers.

Consumers stand in the order of their dominant share, the largest fraction of any one resource that
they hold (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011), divided by their weight; a
consumer's own jobs stand by priority, then age. One round asks every consumer in turn, so ten
thousand waiting jobs of one delay another's first job by no more than that round. A round ends a
kind of request at its first failure: nothing frees up inside a round, so trying the same kind again
is work without hope.

A gang stands in its consumer's lines as one, counts as all its members, and is placed whole or not
at all; while it waits it holds nothing. Smaller jobs would take each device as it comes free: so,
for a tenth of the time, what came after a gang that has waited for long stands back, and what comes
free adds up. By the clock, so that many such gangs hold nobody back for longer than one does; and
whoever does not wait may have what is free all the same.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from marketplace.matching.engine import Matchmaker
from marketplace.matching.model import WHOLE, Gang, NoMatch, Placement, Request
from marketplace.matching.waiting import Account, Kind, Quota, Started, Waiting, member_name

EVERY_MS: Final = 1_200_000
BACK_MS: Final = 120_000
"""The last so much of every EVERY_MS is when they do."""


_Head: TypeAlias = tuple[int, float, int, str, Kind]
"""A consumer's next job: priority (negated), dominant share, age, consumer, kind."""


class FairQueue:
    """Jobs waiting for a matchmaker, and the shares of those who hold something."""

    def __init__(
        self,
        market: Matchmaker,
        quotas: Mapping[str, Quota] | None = None,
        default: Quota | None = None,
    ) -> None:
        self.market = market
        self._quotas = dict(quotas or {})
        self._default = default or Quota()
        self._accounts: dict[str, Account] = {}
        self._waiting: dict[str, tuple[str, Kind]] = {}
        self._gangs: dict[str, Waiting] = {}  # those of the waiting that are gangs
        self._running: dict[str, tuple[str, Placement]] = {}
        self._seq = 0
        self._finished: deque[tuple[int, int]] = deque(maxlen=512)

    def __len__(self) -> int:
        return len(self._waiting)

    def quota(self, consumer: str) -> Quota:
        """The limits of *consumer*."""
        return self._quotas.get(consumer, self._default)

    def _account(self, consumer: str) -> Account:
        account = self._accounts.get(consumer)
        if account is None:
            account = self._accounts[consumer] = Account(self.quota(consumer))
        return account

    def submit(self, job: str, request: Request, now: int) -> None:
        """Put a job in line for ``request.owner``. ValueError when it already waits or runs."""
        self._submit(job, request, None, now)

    def submit_gang(self, name: str, gang: Gang, now: int) -> None:
        """Put a gang in line, for its first member's owner. ValueError when it already waits or
        runs, or has no members.
        """
        if not gang.members:
            raise ValueError(f"gang {name} has no members")
        self._submit(name, gang.members[0], gang, now)

    def runs(self, name: str) -> bool:
        """Whether the job or gang *name* was given its place by a round, and still holds any of
        it.
        """
        return name in self._running or member_name(name, 0) in self._running

    def _submit(self, job: str, request: Request, gang: Gang | None, now: int) -> None:
        if job in self._waiting or self.runs(job):
            raise ValueError(f"job {job} is already known")
        account = self._account(request.owner)
        self._seq += 1
        priority = min(request.priority, account.quota.max_priority)
        self._line_up(account, Waiting(job, request, now, self._seq, priority, gang))

    def _line_up(self, account: Account, waiting: Waiting) -> Kind:
        key = waiting.kind
        account.lines.setdefault(key, deque()).append(waiting)
        self._waiting[waiting.job] = (waiting.request.owner, key)
        if waiting.gang is not None:
            self._gangs[waiting.job] = waiting
        return key

    def cancel(self, job: str) -> None:
        """Take a job out of the line. KeyError when it does not wait."""
        consumer, key = self._waiting.pop(job)
        self._gangs.pop(job, None)
        account = self._accounts[consumer]
        account.keep(key, lambda waiting: waiting.job != job)
        self._forget(consumer)

    def amend(self, asked: Mapping[str, Request | Gang]) -> None:
        """What waiting jobs and gangs ask for, in words that mean something else by now; they keep
        their age. KeyError when one does not wait.
        """
        lines: defaultdict[str, set[Kind]] = defaultdict(set)
        for job in asked:
            consumer, key = self._waiting[job]
            lines[consumer].add(key)
        for consumer, keys in lines.items():
            self._amend(self._accounts[consumer], keys, asked)

    def _amend(
        self, account: Account, keys: set[Kind], asked: Mapping[str, Request | Gang]
    ) -> None:
        were = [waiting for key in keys for waiting in account.lines[key]]
        anew = [one for one in (w.asking(asked.get(w.job)) for w in were) if one is not None]
        changed = {one.job for one in anew}
        for key in keys if changed else ():
            account.keep(key, lambda waiting: waiting.job not in changed)
        for key in {self._line_up(account, waiting) for waiting in anew}:
            account.lines[key] = deque(sorted(account.lines[key], key=lambda one: one.seq))

    def _forget(self, consumer: str) -> None:
        account = self._accounts.get(consumer)
        if account and not account.lines and not account.running:
            del self._accounts[consumer]

    def share(self, consumer: str) -> float:
        """The dominant share of *consumer*, divided by its weight."""
        account = self._accounts.get(consumer)
        return self._share(account, self.market.capacity()) if account else 0.0

    @staticmethod
    def _share(account: Account, capacity: tuple[int, int, int]) -> float:
        held = (account.gpu_milli, account.cpu_milli, account.memory_mib)
        most = max(h / c if c else 0.0 for h, c in zip(held, capacity, strict=True))
        return most / account.quota.weight

    def fair_share(self) -> float:
        """What each unit of weight would have if those who hold or wait for something split the
        market equally.
        """
        return 1.0 / max(sum(account.quota.weight for account in self._accounts.values()), 1.0)

    def share_after(self, consumer: str, ended: Sequence[Placement]) -> float:
        """The dominant share of *consumer* once those of its placements in *ended* have ended."""
        account = self._accounts.get(consumer)
        if account is None:
            return 0.0
        gone = [p.request for p in ended if p.request.owner == consumer]
        left = Account(
            account.quota,
            account.gpu_milli - sum(r.gpu_demand for r in gone),
            account.cpu_milli - sum(r.cpu_milli for r in gone),
            account.memory_mib - sum(r.memory_mib for r in gone),
        )
        return self._share(left, self.market.capacity())

    def placement(self, job: str) -> Placement | None:
        """What *job* holds, None when it does not run."""
        running = self._running.get(job)
        return None if running is None else running[1]

    def adopt(self, job: str, placement: Placement, now: int) -> None:
        """Count a job that already runs (at start-up)."""
        self._hold(placement.request.owner, job, placement, now)

    def _hold(self, consumer: str, job: str, placement: Placement, now: int) -> None:
        account = self._account(consumer)
        request = placement.request
        account.gpu_milli += request.gpu_demand
        account.cpu_milli += request.cpu_milli
        account.memory_mib += request.memory_mib
        account.running += 1
        self._running[job] = (consumer, placement)

    def finished(self, job: str, now: int) -> Placement:
        """A job ended: give back what it held. KeyError when it does not run."""
        consumer, placement = self._running.pop(job)
        account = self._accounts[consumer]
        request = placement.request
        account.gpu_milli -= request.gpu_demand
        account.cpu_milli -= request.cpu_milli
        account.memory_mib -= request.memory_mib
        account.running -= 1
        self.market.release(placement)
        self._finished.append((now, max(request.gpu_demand, 1)))
        self._forget(consumer)
        return placement

    def _within(self, account: Account, waiting: Waiting) -> bool:
        quota = account.quota
        gpus, cores = quota.max_gpu_milli, quota.max_cpu_milli
        wanted = sum(one.cpu_milli for one in waiting.requests)
        return (gpus is None or account.gpu_milli + waiting.gpu_demand <= gpus) and (
            cores is None or account.cpu_milli + wanted <= cores
        )

    def _attempt(self, waiting: Waiting, now: int) -> tuple[Placement, ...]:
        """Places for all that it asks for, or none."""
        if waiting.gang is None:
            placed = self.market.attempt(waiting.request, now)
            return (placed,) if placed is not None else ()
        found = self.market.place_gang(waiting.gang, now)
        return () if isinstance(found, NoMatch) else found

    def _start(self, consumer: str, kind: Kind, placed: tuple[Placement, ...], now: int) -> Started:
        account = self._accounts[consumer]
        line = account.lines[kind]
        waiting = line.popleft()
        if not line:
            del account.lines[kind]
        del self._waiting[waiting.job]
        self._gangs.pop(waiting.job, None)
        names = (waiting.job,)
        if waiting.gang is not None:
            names = tuple(member_name(waiting.job, at) for at in range(len(placed)))
        for name, one in zip(names, placed, strict=True):
            self._hold(consumer, name, one, now)
        return Started(waiting.job, placed, now - waiting.submitted_ms, names)

    def _first(self, now: int) -> tuple[int, int, int] | None:
        """The rank of the first gang that others stand back for now, if any does."""
        if now % EVERY_MS < EVERY_MS - BACK_MS:
            return None
        return min((one.rank for one in self._gangs.values() if one.patient(now)), default=None)

    def round(self, now: int, limit: int | None = None) -> list[Started]:
        """Start what fits, fairest first, at most *limit* jobs; those started, in order."""
        capacity = self.market.capacity()
        first = self._first(now)
        heads: list[_Head] = []
        hopeless: set[Kind] = set()
        for consumer in self._accounts:
            self._queue_up(consumer, capacity, hopeless, heads)
        started: list[Started] = []
        while heads and (limit is None or len(started) < limit):
            _, _, _, consumer, kind = heapq.heappop(heads)
            account = self._accounts[consumer]
            waiting = account.lines[kind][0]
            back = first is not None and waiting.rank > first and not waiting.patient(now)
            within = not back and self._within(account, waiting)
            placed: tuple[Placement, ...] = ()
            if within and kind[1:] not in hopeless:
                placed = self._attempt(waiting, now)
            if not placed:
                # A share may still fit beside the same consumer's own work, so there the failure is
                # theirs alone.
                request = waiting.request
                alone = not within or (request.gpu_count == 1 and request.gpu_milli < WHOLE)
                hopeless.add((consumer, *kind[1:]) if alone else kind[1:])
            else:
                started.append(self._start(consumer, kind, placed, now))
            self._queue_up(consumer, capacity, hopeless, heads)
        return started

    def _queue_up(
        self,
        consumer: str,
        capacity: tuple[int, int, int],
        hopeless: set[Kind],
        heads: list[_Head],
    ) -> None:
        """Put a consumer's next hopeful job among the *heads*."""
        account = self._accounts[consumer]
        firsts = [
            (-line[0].priority, line[0].seq, kind)
            for kind, line in account.lines.items()
            if kind[1:] not in hopeless and (consumer, *kind[1:]) not in hopeless
        ]
        if firsts:
            priority, seq, kind = min(firsts, key=lambda one: one[:2])
            heapq.heappush(heads, (priority, self._share(account, capacity), seq, consumer, kind))

    def expected_wait_ms(self, job: str, now: int) -> int | None:
        """How long a waiting job may expect to wait: what stands before it, over the pace at which
        work ended lately.

        None while nothing has ended yet. KeyError when the job does not wait.
        """
        consumer, kind = self._waiting[job]
        account = self._accounts[consumer]
        if len(self._finished) < 2:
            return None
        first, last = self._finished[0][0], max(now, self._finished[-1][0])
        if last <= first:
            return None
        freed = sum(milli for _, milli in self._finished)
        mine = next(w for w in account.lines[kind] if w.job == job)
        capacity = self.market.capacity()
        share = self._share(account, capacity)
        ahead = max(mine.gpu_demand, 1)
        for name, other in self._accounts.items():
            before = name == consumer or self._share(other, capacity) <= share
            for line in other.lines.values():
                for waiting in line:
                    sooner = (-waiting.priority, waiting.seq) < (-mine.priority, mine.seq)
                    if waiting.job != job and sooner and before:
                        ahead += max(waiting.gpu_demand, 1)
        return ahead * (last - first) // max(freed, 1)
