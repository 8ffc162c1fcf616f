"""What the market refuses, beyond the domain's own refusals."""

from __future__ import annotations

from marketplace.domain.errors import Conflict, Fault, Forbidden, NotFound, Refusal


class NothingMatches(Refusal):
    """No offer fits the job now; ``fields["explain"]`` counts why and names what would."""

    code = "NO_MATCH"
    remedy = "relax what the message counts, or set `policy.queue: true` and wait for a place"


class OverBudget(Refusal):
    """The API key's budget, or the job's own, does not cover this."""

    code = "OVER_BUDGET"
    remedy = "lower the job's budget, or use a key with more budget left"


class MonthSpent(Refusal):
    """The API key's cap of this month does not cover this."""

    code = "MONTH_SPENT"
    remedy = (
        "wait for the next month, which begins at `resets_at_ms` (UTC), lower the job's budget, or"
        " use a key with a higher cap"
    )


class RateLimited(Refusal):
    """Too many requests from one account or address."""

    code = "RATE_LIMITED"
    remedy = "wait for `retry_after_ms` and try again"


class TooLarge(Refusal):
    """A body or a file beyond the limit."""

    code = "TOO_LARGE"
    remedy = "send less, or split it"


class QuotaSpent(TooLarge):
    """The account's files would come to more than this market keeps for one account."""

    code = "BLOB_QUOTA"
    remedy = "delete files that no job needs any more: DELETE /v1/blobs/{sha256}"


class BlobInUse(Conflict):
    """A job that has not ended names the file."""

    code = "BLOB_IN_USE"
    remedy = "end the job that is named, or wait for its end"


class StoreNone(Refusal):
    """A cluster names a store of the market's, and there is none."""

    code = "STORE_NONE"
    remedy = "name a store of your own by its url, or take a market that keeps some"


class StoreInUse(Conflict):
    """A store is to go that a cluster uses."""

    code = "STORE_IN_USE"
    remedy = "stop the cluster first; a moment later its store is nobody's"


class TooManyQueued(Refusal):
    """The account has as many jobs waiting for a place as this market takes from one."""

    code = "TOO_MANY_QUEUED"
    remedy = "wait until some are placed, or stop some"


class TooManyLinks(Refusal):
    """The account has as many links to ports as this market keeps for one."""

    code = "TOO_MANY_LINKS"
    remedy = "end some: `tally job share ID PORT --list` shows them"


class NoAppDomain(Refusal):
    """Ports have no addresses of their own here."""

    code = "NO_APP_DOMAIN"
    remedy = "reach the port at /p/JOB/PORT/; the operator: see --apps-url"


class NoRegistry(Refusal):
    """This market keeps no images."""

    code = "NO_REGISTRY"
    remedy = "use another registry; the operator: see `tally market registry`"


class ImagePrivate(Forbidden):
    """An image of the market's registry that the account may not pull."""

    code = "IMAGE_PRIVATE"
    remedy = "push it to your own account (`tally image push`), or ask its owner to make it public"


class AppNotRunning(Fault):
    """A page may be to come: its job waits for a place or its start, or is paused."""

    code = "APP_NOT_RUNNING"
    remedy = "wait a little and load it again; the job's page says how far it is"


class AppOver(Refusal):
    """A page was here: its job has ended."""

    code = "APP_OVER"
    remedy = "start the job again: it will have an address of its own"


class NoReplica(Fault):
    """A service whose replicas are all away: it starts, or nobody has it started."""

    code = "NO_REPLICA"
    remedy = "wait a little and load it again; its owner: `tally service show`"


class ReplicaLost(Fault):
    """The replica that was asked went away before it answered, and may have done what was asked."""

    code = "REPLICA_LOST"
    remedy = "ask again if it does no harm twice; with an Idempotency-Key it is asked again for you"


class TooManyServices(Refusal):
    """As many services as an account may have, or replicas as a service may."""

    code = "TOO_MANY_SERVICES"
    remedy = "end one that is not needed: `tally service list`"


class OtherPurse(Refusal):
    """What comes home from a channel would go to another key than the account's."""

    code = "OTHER_PURSE"
    remedy = (
        "pay from the purse that signed in, or that made the API key; or make a key with this purse"
    )


class PaymentOwed(Refusal):
    """Something that was served to this account is not paid for."""

    code = "PAYMENT_OWED"
    remedy = "pay or answer what is owed first: run the payer that holds the channel"


class UnpaidWait(Refusal):
    """Leases ended unpaid a short while ago."""

    code = "UNPAID_WAIT"
    remedy = "wait for `retry_after_ms` and try again; it grows with each unpaid end, and passes"


class TooManyQuotes(Refusal):
    """As many quotes are open, or signed and not funded, as this account or address may have at
    once.
    """

    code = "TOO_MANY_QUOTES"
    remedy = (
        "fund or stop those that are open, or wait for `retry_after_ms`; a first paid lease raises"
        " the limit"
    )


class DiskFull(Fault):
    """Another file would leave the market's own records too little room."""

    code = "DISK_FULL"
    remedy = "the operator frees or adds disk space; then the same upload is taken"


class NotOffered(Refusal):
    """A shape of job that this market does not run yet."""

    code = "NOT_OFFERED"
    remedy = "change the field that is named"


class Suspended(Forbidden):
    """The market's operator suspended this account or provider."""

    code = "SUSPENDED"
    remedy = "ask the operator of this market; what was earned or is locked stays yours on chain"


class KeyReused(Conflict):
    """An Idempotency-Key that stands for another request already."""

    code = "IDEMPOTENCY_KEY_REUSED"
    remedy = "use a new key for each request, and the same one only to repeat it"


class QuoteGone(Refusal):
    """The quote lapsed, was declined or was signed already."""

    code = "QUOTE_GONE"
    remedy = "post the job again for a fresh quote"


class TakesNoOrder(Conflict):
    """A lease that runs no member of a cluster, or does so no more, or not yet."""

    code = "TAKES_NO_ORDER"
    remedy = "order members whose leases are signed and live: GET /v1/gangs/{id}/cluster shows them"


class NoGuestRelay(Conflict):
    """No relay carries what a machine of the consumer's own says to a cluster's members."""

    code = "NO_GUEST_RELAY"
    remedy = "join without it: members with an address of the world are reached there"


class NotRenewable(Refusal):
    """A lease that does not run, or that a router pays."""

    code = "NOT_RENEWABLE"
    remedy = "renew a lease while it runs; else post the job again"


class NoChain(Refusal):
    """This market has no chain configured, so it builds and settles nothing."""

    code = "NO_CHAIN"
    remedy = "start the market with --chain-url, or use a client with its own chain URL"


class ChainAway(Fault):
    """The chain that this market was started with does not answer yet."""

    code = "CHAIN_AWAY"
    remedy = "try again soon, or use a client with its own chain URL; /readyz says when it is back"


class RouterAway(Fault):
    """The lease is paid over a router that this market process does not run (any more)."""

    code = "ROUTER_AWAY"
    remedy = "try again soon, or post the job again without a hop: it is then rented directly"


class NoRouter(NotFound):
    """This market passes on no payments."""

    code = "NO_ROUTER"
    remedy = "rent over a channel to the provider, or at a market that has a router"


class HookRefused(Refusal):
    """A webhook that points where the market must not call."""

    code = "WEBHOOK_REFUSED"
    remedy = "use an https URL on a public address"


class HooksOff(Fault):
    """This market was started without the key that webhooks' secrets are derived from."""

    code = "WEBHOOKS_OFF"
    remedy = "ask the operator to start the market with its keystore's passphrase"


class HookKeyWrong(Refusal):
    """The market's keystore holds another key than the one that this database's webhooks know."""

    code = "WEBHOOK_KEY_WRONG"
    remedy = (
        "serve with the keystore that the other processes use, or restore it from its backup; if it"
        " is lost or was seen by others, `tally market rekey-webhooks` makes a new one"
    )


class BlobMismatch(Refusal):
    """The bytes are not those of the hash in the URL."""

    code = "BLOB_MISMATCH"
    remedy = "hash the file again and send all of it"


class Elsewhere(Fault):
    """Another process of this market holds the provider's connection, and it could not be asked."""

    code = "ELSEWHERE"
    remedy = "try again; the operator: each process needs an --internal-url that the others reach"


class Offline(Fault):
    """The provider is not connected just now."""

    code = "PROVIDER_OFFLINE"
    remedy = "wait until it reconnects; the job page says since when it is away"


class Unreached(Offline):
    """It is not connected, so nothing of what was to be sent there was."""
