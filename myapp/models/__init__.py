"""Typed SQLAlchemy tables. No behaviour: rules live in `domain`, changes in `persistence`."""

from myapp.models.base import Base
from myapp.models.model_allocation import Allocation, Flavor
from myapp.models.model_history import Audit, Outbox, Transition
from myapp.models.model_job_template import JobTemplate, JobTemplateVersion
from myapp.models.model_pipeline import Pipeline, PipelineVersion, Schedule
from myapp.models.model_project import Project, ProjectUser
from myapp.models.model_result import LogChunk, Metric, Output
from myapp.models.model_run import Attempt, Run, TaskRun

__all__ = [
    "Allocation",
    "Attempt",
    "Audit",
    "Base",
    "Flavor",
    "JobTemplate",
    "JobTemplateVersion",
    "LogChunk",
    "Metric",
    "Outbox",
    "Output",
    "Pipeline",
    "PipelineVersion",
    "Project",
    "ProjectUser",
    "Run",
    "Schedule",
    "TaskRun",
    "Transition",
]
