"""By what a path names things."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

JobId = Annotated[str, Path(description="the job's id")]
GangId = Annotated[str, Path(description="the gang's id")]
LeaseId = Annotated[str, Path(description="the lease's id")]
OfferId = Annotated[str, Path(description="the offer's id")]
LinkId = Annotated[str, Path(description="the link's id")]
PortNumber = Annotated[int, Path(ge=1, le=65_535, description="a port of its workload")]
ServiceName = Annotated[str, Path(max_length=80, description="the service's name")]
StoreName = Annotated[str, Path(max_length=64, description="the store's name")]
ImageName = Annotated[str, Path(max_length=200, description="the image's name")]
ImageDigest = Annotated[
    str, Path(pattern="^sha256:[0-9a-f]{64}$", description="its manifest's: `sha256:…`")
]
KeyId = Annotated[str, Path(description="the API key's id")]
HookId = Annotated[str, Path(description="the webhook's id")]
ProviderVk = Annotated[str, Path(description="the provider's key, hex")]
SessionVk = Annotated[str, Path(description="the channel's session key, 64 hex digits")]
Sha256 = Annotated[str, Path(description="of the file's bytes, hex")]
