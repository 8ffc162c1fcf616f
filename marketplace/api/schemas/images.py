"""What the API answers about the market's registry of images."""

from __future__ import annotations

from marketplace.api.schemas.shape import Answer, told


class Registry(Answer):
    """Where this market keeps images, and what its registry believes."""

    name: str = told("`host[:port]`, as the names of its images begin")
    realm: str = told("where its tokens are had")
    certificate: str = told("PEM: the key that signs them")


class PublicImage(Answer):
    """One that anybody may pull."""

    repository: str = told("`NAMESPACE/NAME`")
    created_at_ms: int = told("when it was made public, ms since 1970, UTC")


class Images(Answer):
    """What the market knows of an account's images; what lies there, its registry says."""

    registry: str = told("`host[:port]`")
    namespace: str = told("the account's: its images are `REGISTRY/NAMESPACE/NAME`")
    quota: int = told("bytes that they may take together")
    public: list[PublicImage] = told("those that anybody may pull, by name")


class HeldImage(Answer):
    """An image that lies in the registry."""

    repository: str = told("`NAMESPACE/NAME`")
    digest: str = told("`sha256:…` of its manifest")
    tags: list[str] = told("those that name it")
    bytes: int = told("all that it names, packed")
    layers: int = told("how many layers it has")
    pushed_at_ms: int = told("ms since 1970, UTC")
    public: bool = told("anybody may pull it")


class Holdings(Answer):
    """What lies in the registry of an account's."""

    registry: str = told("`host[:port]`")
    namespace: str = told("the account's: its images are `REGISTRY/NAMESPACE/NAME`")
    used: int = told("bytes that they take together, what several have counted once")
    quota: int = told("bytes that they may take together")
    items: list[HeldImage] = told("by name, the latest of each first")


class DeletedImage(Answer):
    """An image that is gone."""

    repository: str = told("`NAMESPACE/NAME`")
    digest: str = told("`sha256:…` of its manifest")
    deleted: bool = told("true")


class PopularImage(Answer):
    """An image that several accounts ran lately, and that anybody may pull."""

    image: str = told("its name, by its digest")
    accounts: int = told("how many different accounts ran it")
    bytes: int = told("its packed size, bytes")


class PopularImages(Answer):
    """The most used first."""

    items: list[PopularImage] = told("at most 50")
    next: None = told("null: all of them are here")


class ImageAccess(Answer):
    """Who may pull an image."""

    repository: str = told("`NAMESPACE/NAME`")
    public: bool = told("anybody; else the account, and the providers of its leases")


class ImageToken(Answer):
    """A token, as clients of registries read it."""

    token: str = told("for the registry")
    access_token: str = told("the token again, by OAuth's name")
    expires_in: int = told("seconds that it holds")
    issued_at: str = told("RFC 3339, UTC")
