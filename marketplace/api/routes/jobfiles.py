"""Job files, read and written: for whoever edits one, before anything is asked or posted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request

from marketplace.api.http.auth import PartsDep, Reader
from marketplace.api.http.jobforms import posted
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas import jobs as shapes
from marketplace.api.schemas.requests import FileBody, Nothing, SpecBody, job_forms
from marketplace.api.schemas.shape import Shape
from marketplace.domain.work import jobfile
from marketplace.jobtext import text

router = APIRouter(prefix="/v1", tags=["jobs"], responses=documented(*EVERYWHERE))


@router.post(
    "/jobfiles",
    summary="Read a job file, or write a job as one",
    openapi_extra=job_forms(FileBody, SpecBody, Nothing),
)
async def read(
    request: Request, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.JobForms)]:
    """The job in each of its forms; all that is wrong with a file at once. Nothing is priced."""
    spec = (await posted(request, parts, who, Nothing)).spec
    told = jobfile.write(spec)
    return {"job": told, "spec": spec.to_wire(), "text": text(told)}
