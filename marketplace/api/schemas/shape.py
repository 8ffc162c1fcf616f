"""What the API's document says of answers, without touching how they are made.

An answer is a plain dictionary, made beside what it shows (``market.jobs.views``) and written as it
is. ``Annotated[dict[str, Any], Shape(Model)]`` is such a dictionary; the OpenAPI document shows
*Model* for it. That the two agree is held by the tests, which look at every answer they get.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Answer(BaseModel):
    """Base of all answers: never made, only shown. Later versions may add fields."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)


class Shape:
    """Metadata of an annotation: the document shows one of *models*; values are not looked at."""

    def __init__(self, *models: type[BaseModel]) -> None:
        self.models = models

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """A reference to each model, which becomes a component of the document."""
        models = [model.__pydantic_core_schema__ for model in self.models]
        return handler(core_schema.union_schema([*models]))


def told(text: str, **more: Any) -> Any:
    """A field that is always there, and *text* about it, with its unit."""
    return Field(description=text, **more)


def maybe(text: str, **more: Any) -> Any:
    """A field that is absent where it says nothing; the document names no default for it."""
    return Field(default=None, description=text, json_schema_extra=_no_default, **more)


def _no_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def names_of(states: type[Enum]) -> dict[str, Any]:
    """An enumeration that is shown by its names."""
    return {"json_schema_extra": {"enum": list(states.__members__)}}


def text_of(about: str) -> dict[str, Any]:
    """The OpenAPI media type of a text."""
    return {"schema": {"type": "string", "description": about}}


def stream_of(**events: type[BaseModel]) -> dict[str, Any]:
    """The media type of server-sent events: by name, what the JSON in ``data`` is.

    ``itemSchema`` is OpenAPI 3.2's word for one event; the tools that read streams know it by now.
    """
    return {"itemSchema": {"anyOf": [_event(*event) for event in events.items()]}}


def _event(name: str, model: type[BaseModel]) -> dict[str, Any]:
    shape = {"$ref": f"#/components/schemas/{model.__name__}"}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": shape}
    fields = {"event": {"const": name}, "data": data, "id": {"type": "string"}}
    return {"type": "object", "properties": fields, "required": ["event", "data"]}


BYTES: Final = {"schema": {"type": "string", "format": "binary"}}
Next: Final = told("give it back as `cursor` for the next page; null: this is the last")
