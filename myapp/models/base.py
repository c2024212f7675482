"""The declarative base of every table the platform owns (Flask-AppBuilder's tables have their own metadata)."""

from __future__ import annotations

from typing import Any

import orjson
from sqlalchemy import BigInteger, Double, Integer, MetaData, String, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator, TypeEngine

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class JSONText(TypeDecorator[Any]):
    """JSON kept as text: the same on SQLite, PostgreSQL and MariaDB, up to 16 MiB, read and written by orjson."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name not in ("mysql", "mariadb"):
            return self.impl_instance
        from sqlalchemy.dialects.mysql import MEDIUMTEXT

        return MEDIUMTEXT()

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else orjson.loads(value)


Id = BigInteger().with_variant(Integer, "sqlite")
Moment: Double[float] = Double()  # unix seconds, UTC
Key = String(63)
Label = String(32)


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
