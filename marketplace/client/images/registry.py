"""The market's registry as its accounts meet it: tokens, what lies there, deleting.

The market's credential goes to the market alone, whatever a registry says of where tokens are had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote

import httpx

from marketplace.client.net.http import Http, MarketRefused, NotAMarket
from marketplace.domain.errors import Fault, Malformed, Refusal
from marketplace.domain.work.image_access import repository_of
from marketplace.domain.work.image_names import Reference, is_loopback

NONE: Final = ("NO_REGISTRY", "NOT_A_MARKET")  # the latter: a market from before there were any
_DEADLINE_S: Final = 60.0
_OK, _ACCEPTED, _NOT_FOUND = 200, 202, 404


class RegistryFault(Fault):
    """The market's registry does not answer as one."""

    code = "REGISTRY_UNREACHABLE"
    remedy = "try again; if it goes on, tell the market's operator"


class NoImage(Refusal):
    """There is no such image among the account's."""

    code = "NO_IMAGE"
    remedy = "`tally image list` names them"


class NotPushed(Refusal):
    """The registry did not take the image, or a part of it."""

    code = "IMAGE_NOT_PUSHED"
    remedy = "`tally image list` says what is there and how much room is left"


@dataclass(frozen=True)
class Account:
    """Where an account's images lie."""

    registry: str
    namespace: str
    quota: int
    public: frozenset[str]

    def name(self, image: str) -> Reference:
        """The whole name of *image*: ``NAME[:TAG][@sha256:…]``, or the whole one already;
        :class:`Malformed` for one that is elsewhere.
        """
        short = f"{self.registry}/{self.namespace}/{image}"
        whole = Reference.parse(image if image.startswith(f"{self.registry}/") else short)
        namespace, _, name = whole.repository.partition("/")
        if namespace != self.namespace:
            raise Malformed(f"{image!r} is not one of this account's images")
        repository_of(namespace, name)
        return whole

    def anybodys(self, image: str) -> Reference:
        """The whole name of *image* in this registry: the account's by its short name, or any by
        the whole one; :class:`Malformed`.
        """
        if image.startswith(f"{self.registry}/"):
            return Reference.parse(image)
        return self.name(image)


@dataclass(frozen=True)
class Stored:
    """One image of an account, as the registry has it; *bytes* packed."""

    repository: str
    digest: str
    tags: list[str]
    bytes: int
    layers: int
    pushed_ms: int


@dataclass(frozen=True)
class Holdings:
    """All of an account's images, and the room that they take of its quota."""

    used: int
    quota: int
    images: list[Stored]


class MarketRegistry:
    """The registry of the market at *http*."""

    def __init__(self, http: Http, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.http, self._transport = http, transport

    async def name(self) -> str:
        """``host[:port]``; empty where the market has none."""
        try:
            said = await self.http.get("/v1/registry")
        except (MarketRefused, NotAMarket) as refused:
            if refused.code in NONE:
                return ""
            raise
        return str(cast("dict[str, Any]", said)["name"])

    async def account(self) -> Account:
        """The account's part of it; :class:`MarketRefused` where there is none."""
        said = cast("dict[str, Any]", await self.http.get("/v1/registry/images"))
        public = frozenset(str(one["repository"]) for one in said["public"])
        return Account(str(said["registry"]), str(said["namespace"]), int(said["quota"]), public)

    async def token(self, *scopes: str) -> str:
        """For *scopes*, as the market grants them to this account."""
        return str((await self.http.get("/v1/registry/token", scope=" ".join(scopes)))["token"])

    async def pull_token(self, image: str) -> str:
        """To read *image*; empty if it is not in this market's registry."""
        reference = Reference.parse(image)
        if reference.host != await self.name():
            return ""
        return await self.token(f"repository:{reference.repository}:pull")

    async def holdings(self, account: Account) -> Holdings:
        """What lies there. RegistryFault."""
        token = await self.token(f"namespace:{account.namespace}:list")
        answer = await self._ask(account, "GET", f"/images/{account.namespace}", token)
        if answer.status_code != _OK:
            raise RegistryFault(f"{account.registry} answered {answer.status_code}")
        said = cast("dict[str, Any]", answer.json())
        images = [
            Stored(repository=str(one["name"]), **image)
            for one in said["repositories"]
            for image in one["images"]
        ]
        return Holdings(int(said["used"]), int(said["quota"]), images)

    async def delete(self, account: Account, image: Stored) -> None:
        """Delete one image, with all its tags; its room comes back with the next collection."""
        token = await self.token(f"repository:{image.repository}:delete")
        path = f"/v2/{image.repository}/manifests/{image.digest}"
        answer = await self._ask(account, "DELETE", path, token)
        if answer.status_code not in (_ACCEPTED, _NOT_FOUND):
            raise RegistryFault(f"{account.registry} answered {answer.status_code}")

    async def set_public(self, name: str, public: bool) -> None:
        """Whether anybody pulls the account's repository *name*."""
        await self.http.put_json(f"/v1/registry/images/{quote(name, safe='')}", {"public": public})

    async def _ask(self, account: Account, method: str, path: str, token: str) -> httpx.Response:
        scheme = "http" if is_loopback(account.registry) else "https"
        try:
            async with httpx.AsyncClient(timeout=_DEADLINE_S, transport=self._transport) as client:
                return await client.request(
                    method, f"{scheme}://{account.registry}{path}",
                    headers={"Authorization": f"Bearer {token}"},
                )  # fmt: skip
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise RegistryFault(f"{account.registry} cannot be asked: {why}") from error
