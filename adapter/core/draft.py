"""One decision while it is being made: a scratch pad that ends as an :class:`Outcome`.

Private to ``decide`` and the modules that it is divided into; nobody else sees a half-made state.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from adapter.core.events import Alarm, Drive, Effect, Outcome, Send
from adapter.core.state import Channel, Lease, Now, Own, State
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.protocol import wire


@dataclass(slots=True)
class Draft:
    """The state so far, and what is to be done."""

    state: State
    own: Own
    now: Now
    effects: list[Effect] = field(default_factory=list[Effect])
    ticks: list[SignedReceipt] = field(default_factory=list[SignedReceipt])
    durable: bool = False

    def outcome(self) -> Outcome:
        """What ``decide`` returns."""
        return Outcome(self.state, tuple(self.effects), tuple(self.ticks), self.durable)

    def put(self, lease: Lease, durable: bool = True) -> Lease:
        """Replace the lease; *durable* unless losing the change in a crash costs nobody
        anything.
        """
        self.state = self.state.with_lease(lease)
        self.durable = self.durable or durable
        return lease

    def put_channel(self, channel: Channel) -> Channel:
        """Replace the channel."""
        self.state = self.state.with_channel(channel)
        self.durable = True
        return channel

    def drop(self, lease: Lease) -> None:
        """The lease is over: the journal keeps it as history."""
        self.state = self.state.without(lease.id)
        self.durable = True

    def forget(self, channel: Channel) -> None:
        """The channel is finished for good, or never opened: only a used key is remembered."""
        past = self.state.past.plus(channel) if channel.used else self.state.past
        self.state = self.state.without_channel(channel.session_vk, past)
        self.durable = True

    def channel_of(self, lease: Lease) -> Channel | None:
        """The channel that pays it, once the terms are signed."""
        return self.state.channels.get(lease.channel)

    def send(self, message: wire.Message, durable: bool = True) -> None:
        """Tell the market."""
        self.effects.append(Send(message, durable))
        self.durable = self.durable or durable

    def progress(self, lease: str, stage: str, durable: bool = True, **detail: object) -> None:
        """Tell the market of a step of a lease."""
        facts = {name: value for name, value in detail.items() if value is not None}
        self.send(wire.LeaseProgress(lease, stage, self.now.wall_ms, facts), durable)

    def drive(self, lease: Lease) -> None:
        """Bring the workload to the lease's wish."""
        self.effects.append(Drive(lease.id))

    def alarm(self, code: str, message: str) -> None:
        """Tell the owner."""
        self.effects.append(Alarm(code, message))
