"""Single jobs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from myapp.domain.permissions import Permission
from myapp.services.submit_job import submit_job
from myapp.views.blueprints import api
from myapp.views.http import Answer, Call, DocumentBody, route
from myapp.views.query import Query
from myapp.views.schemas import SubmittedReply
from myapp.views.submission import idempotency_key


class JobQuery(Query):
    project: str | None = Field(
        None, max_length=63, description="Where it runs; default: the document's, else `public`."
    )


@route(
    api,
    "/job/",
    methods=("POST",),
    permission=Permission.JOB_SUBMIT,
    tag="job",
    query=JobQuery,
    body=DocumentBody("AIJob"),
    replies={202: SubmittedReply},
    errors=(404, 409),
    headers=("Idempotency-Key",),
    reply_headers=("Location",),
)
def post_job(call: Call) -> Any:
    """Submit an AIJob

    The body is the document itself. The answer's `id` is that of its run.
    """
    done = submit_job(
        call.context, call.actor, call.body.data, project=call.query.project, idempotency_key=idempotency_key()
    )
    warnings = [problem.model_dump() for problem in call.body.located(list(done.warnings))]
    data = {"id": done.run_id, "created": done.created, "warnings": warnings}
    return Answer(data, 202, {"Location": f"/api/v1/run/{done.run_id}"})
