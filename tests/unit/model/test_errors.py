"""The error hierarchy as its users see it."""

from __future__ import annotations

import pickle

from sirocco.model.errors import (
    ERRORS_BY_CODE,
    InvalidArgument,
    OutOfRange,
    ResourceExhausted,
    SiroccoError,
)


def test_codes_are_stable() -> None:
    retryable = {code for code, error in ERRORS_BY_CODE.items() if error.retryable}
    assert set(ERRORS_BY_CODE) == {
        "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "OUT_OF_RANGE", "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION", "UNAVAILABLE", "UNAUTHENTICATED", "PERMISSION_DENIED",
        "DEADLINE_EXCEEDED", "PARTIAL_RESULT", "INTERNAL",
    }  # fmt: skip
    assert retryable == {
        *("RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "PARTIAL_RESULT")
    }
    assert all(issubclass(error, SiroccoError) for error in ERRORS_BY_CODE.values())


def test_text_names_the_field() -> None:
    assert str(InvalidArgument("is wrong", field="a.b")) == "a.b: is wrong"
    assert str(InvalidArgument("is wrong")) == "is wrong"


def test_fields_are_seen_from_outside() -> None:
    assert InvalidArgument("x", field="lon").within("objects[3]").field == "objects[3].lon"
    assert InvalidArgument("x", field="[3].lon").within("objects").field == "objects[3].lon"
    assert InvalidArgument("x").within("objects").field == "objects"


def test_payloads_survive_a_process_border() -> None:
    for error in (OutOfRange("gone", earliest="c7"), ResourceExhausted("full", retry_after_ms=20)):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert vars(copy) == vars(error)
