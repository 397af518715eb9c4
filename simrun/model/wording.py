"""What pydantic found wrong, said in plain words, with the key that was probably meant."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Union

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import ErrorDetails

from simrun.base.errors import InvalidInput, Problem
from simrun.model.faults import Fault, FieldFaults, Nearest, Path, dotted, listed
from simrun.model.tasktype import TaskType

_KINDS = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "none": "null",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping (key: value)",
    "model": "a mapping (key: value)",
    "model_attributes": "a mapping (key: value)",
}
_SHOWN = 80


def shown(value: Any, text: str | None = None) -> str:
    """Give a value as it may stand in an error: short, on one line. `text` is how the file writes it."""
    if isinstance(value, dict):
        return "a mapping" if value else "{}"
    if isinstance(value, list):
        return "a list" if value else "[]"
    if isinstance(value, str):
        quoted = json.dumps(value, ensure_ascii=False)
        return quoted if len(quoted) <= _SHOWN else quoted[: _SHOWN - 2] + '…"'
    if value is None:
        return "null"
    plain = text or json.dumps(value, default=str)
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…"


def faults_of(
    errors: Iterable[ErrorDetails],
    *,
    model: Any,
    data: Any,
    text_of: Callable[[Path], str | None] = lambda _: None,
) -> list[Fault]:
    """Turn the errors of one validation into faults, one for each place.

    `model` is what was validated (a model, or dict[str, Model]), `data` what went in. `text_of` gives how the file writes the scalar
    at a path. Of a value that fits no member of a union, pydantic reports every member; here that is one fault.
    """
    by_path: dict[Path, list[ErrorDetails]] = {}
    for error in errors:
        by_path.setdefault(_real_path(error, data), []).append(error)
    faults: list[Fault] = []
    for path, group in by_path.items():
        if len(group) > 1 and all(_kind(error) for error in group):
            kinds = list(dict.fromkeys(_kind(error) or "" for error in group))
            choice = ", ".join(kinds[:-1]) + f" or {kinds[-1]}" if len(kinds) > 1 else kinds[0]
            value = shown(group[0]["input"], text_of(path))
            faults.append(Fault(path, f"must be {choice}", value))
        else:
            faults += [fault for error in group for fault in _faults(error, path, model, text_of)]
    return faults


def invalid(
    error: ValidationError, *, model: Any, data: Any, field_of: Callable[[Path], str] = dotted
) -> InvalidInput:
    """Make the errors of one validation into what a person is told; `field_of` names the field at a path, also at that of the whole."""
    return InvalidInput(
        [
            Problem(field_of(fault.path), fault.message, fault.value, fault.remedy)
            for fault in faults_of(error.errors(include_url=False), model=model, data=data)
        ]
    )


def _real_path(error: ErrorDetails, data: Any) -> Path:
    """Give the part of a location that is in the data; the rest names members of unions."""
    path: list[str | int] = []
    for part in error["loc"]:
        inner = _inside(data, part)
        if inner is None:
            break
        data = inner[0]
        path.append(part)
    if error["type"] == "missing":
        path.append(error["loc"][-1])
    return tuple(path)


def _inside(data: Any, part: str | int) -> tuple[Any] | None:
    """Give what `part` leads to, None when `data` has no such part."""
    if isinstance(data, Mapping):
        return (data[part],) if part in data else None
    if isinstance(data, list) and isinstance(part, int) and part < len(data):
        return (data[part],)
    return None


def _kind(error: ErrorDetails) -> str | None:
    """Give the noun of an error that says a value has the wrong kind; None of any other error."""
    kind, _, what = error["type"].rpartition("_")
    if error["type"] in ("int_from_float", "int_parsing_size"):
        return _KINDS["int"]
    if what in ("type", "parsing", "required"):
        return _KINDS.get(kind)
    return None


def _faults(
    error: ErrorDetails, path: Path, model: Any, text_of: Callable[[Path], str | None]
) -> list[Fault]:
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    written = text_of(path)
    if kind == "extra_forbidden":
        return [_unknown_key(path, model)]
    if kind == "missing":
        return [Fault(path, "is missing")]
    if kind == "value_error":
        cause = context.get("error")
        if isinstance(cause, FieldFaults):
            return [
                Fault((*path, *fault.path), fault.message, fault.value, fault.remedy, fault.at_key)
                for fault in cause.faults
            ]
        return [Fault(path, str(cause), None if isinstance(value, dict) else shown(value, written))]
    if noun := _kind(error):
        remedy = None
        if kind == "string_type" and isinstance(value, bool | int | float) and written:
            remedy = f'write it in quotes: "{written}"'
        return [Fault(path, f"must be {noun}", shown(value, written), remedy)]
    return [Fault(path, _sentence(error, context), shown(value, written))]


def _sentence(error: ErrorDetails, context: Mapping[str, Any]) -> str:
    kind = error["type"]
    simple = {
        "greater_than": "must be more than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        "literal_error": "must be {expected}",
        "finite_number": "must be a finite number",
        "string_too_long": "must have at most {max_length} characters",
    }
    if kind in simple:
        plain = {
            key: f"{value:g}" if isinstance(value, float) else value
            for key, value in context.items()
        }
        return simple[kind].format(**plain)
    if kind == "too_short":
        return (
            "must not be empty" if context["min_length"] == 1 else f"needs {context['min_length']}"
        )
    if kind == "too_long":
        return f"must have at most {context['max_length']} entries"
    text = error["msg"]
    return text[0].lower() + text[1:]


# --- unknown keys ------------------------------------------------------------------------------------------------------


def _unknown_key(path: Path, model: Any) -> Fault:
    owner = model_at(model, path[:-1])
    return unknown_key(path, owner) if owner else Fault(path, "is not known here", at_key=True)


def unknown_key(path: Path, owner: type[BaseModel], *, also: Iterable[str] = ()) -> Fault:
    """Give the fault of a key that `owner` does not have; `also` are keys known besides its fields."""
    key = str(path[-1])
    known = [*field_names(owner), *also]
    remedy = Nearest(known).remedy(key)
    if remedy is None:
        homes = [
            f"`{name}` as `{same}`" if same != key else f"`{name}`"
            for name, field in owner.model_fields.items()
            if (inner := _model_in(field.annotation))
            and (same := Nearest(field_names(inner)).same(key))
        ]
        remedy = f"it belongs under {homes[0]}" if homes else f"known are {listed(known)}"
    return Fault(path, "is not known here", remedy=remedy, at_key=True)


def field_names(model: type[BaseModel]) -> list[str]:
    """Give the keys of a model as a file writes them."""
    names = [field.alias or name for name, field in model.model_fields.items()]
    # The name of a type is the key that it stands under
    return [name for name in names if model is not TaskType or name != "name"]


def model_at(model: Any, path: Path) -> type[BaseModel] | None:
    """Give the model whose fields are the keys at a path below `model`; None where keys are free."""
    annotation = model
    for part in path:
        inner = _model_in(annotation)
        if inner is None:
            annotation = _element(annotation)
            continue
        if issubclass(inner, RootModel):
            annotation = _element(inner.model_fields["root"].annotation)
            continue
        annotation = next(
            (
                field.annotation
                for name, field in inner.model_fields.items()
                if part in (name, field.alias)
            ),
            None,
        )
    return _model_in(annotation)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Give the model of `Model`, `Model | None`, `Annotated[Model, …]`; None for containers of models."""
    if typing.get_origin(annotation) is Annotated:
        return _model_in(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (Union, types.UnionType):
        found = [_model_in(member) for member in typing.get_args(annotation)]
        return next((model for model in found if model), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _element(annotation: Any) -> Any:
    """Give what a container holds: the value of dict[str, X], the item of list[X]."""
    if typing.get_origin(annotation) in (Annotated, Union, types.UnionType):
        inner = [_element(member) for member in typing.get_args(annotation)]
        return next((element for element in inner if element is not None), None)
    if typing.get_origin(annotation) in (dict, list):
        return typing.get_args(annotation)[-1]
    return None
