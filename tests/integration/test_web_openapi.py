"""The API's description is true: complete, and what schemathesis makes of it is answered as it says."""

from __future__ import annotations

import re
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from myapp.views.http import declared_on
from tests.integration.web_fixtures import API, World

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    unsupported_method,
]
STREAMS = "/api/v1/run/{run_id}/events"  # does not end: test_web_run.py follows it


def test_it_describes_every_route(web: World) -> None:
    described = web.client().get(f"{API}/_openapi").get_json()
    wanted = {
        (re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", rule.rule), method.lower())
        for rule in web.app.url_map.iter_rules()
        if (declared := declared_on(web.app.view_functions[rule.endpoint])) and not declared.hidden
        for method in declared.methods
    }
    found = {(path, method) for path, item in described["paths"].items() for method in item}
    assert found == wanted
    assert len(found) > 35


def test_operations_are_named_once_and_explained(web: World) -> None:
    described = web.client().get(f"{API}/_openapi").get_json()
    operations = [op for item in described["paths"].values() for op in item.values()]
    names = [op["operationId"] for op in operations]
    assert len(names) == len(set(names))
    assert all(op["summary"] and op["tags"] != [""] for op in operations)


def test_schemathesis(web: World) -> None:
    """Bounded: some examples of each operation, good and bad, as an owner."""
    schema = schemathesis.openapi.from_wsgi(f"{API}/_openapi", web.app)
    headers, failures = web.bearer("olga"), []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in (STREAMS, f"{API}/security/login"):
            continue
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            failures.extend(_try(operation, mode, headers))
    assert failures == []


def _try(operation: Any, mode: Any, headers: dict[str, str]) -> list[str]:
    from hypothesis import assume, given
    from hypothesis.errors import Unsatisfiable

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=20,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any) -> None:
        # An empty list or a null is not written into a query at all: nothing wrong would be sent.
        assume(not any(value in (None, [], {}) for value in (case.query or {}).values()))
        case.call_and_validate(headers=headers, checks=CHECKS)

    try:
        check()
    except Unsatisfiable:
        return []  # nothing can be wrong with it
    except BaseExceptionGroup as error:
        return [f"{operation.label} ({mode.value}): {error.exceptions[0]}"[:1500]]
    except AssertionError as error:
        return [f"{operation.label} ({mode.value}): {error}"[:1500]]
    return []


@pytest.mark.parametrize("path", ["/health", "/ready", f"{API}/_openapi"])
def test_open_routes(web: World, path: str) -> None:
    assert web.client().get(path).status_code == 200
