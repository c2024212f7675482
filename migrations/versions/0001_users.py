"""Flask-AppBuilder's tables: users, roles, permissions, API keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import CreateSequence, DropSequence

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "ab_group", "ab_permission", "ab_register_user", "ab_role", "ab_user", "ab_view_menu", "ab_api_key",
    "ab_group_role", "ab_permission_view", "ab_user_group", "ab_user_role", "ab_permission_view_role",
)

TABLE = {"if_not_exists": True, "mysql_engine": "InnoDB", "mysql_charset": "utf8mb4"}


def sequences() -> list[sa.Sequence]:
    """MariaDB has sequences, and Flask-AppBuilder's models then take their ids from them; PostgreSQL's SERIAL makes its own."""
    bind = op.get_bind()
    if bind.dialect.name not in ("mysql", "mariadb") or not bind.dialect.supports_sequences:
        return []
    return [sa.Sequence(f"{table}_id_seq") for table in TABLES]


def upgrade() -> None:
    op.create_table(
        "ab_group",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("label", sa.String(length=150), nullable=True),
        sa.Column("description", sa.String(length=512), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        **TABLE,
    )
    op.create_table(
        "ab_permission",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        **TABLE,
    )
    op.create_table(
        "ab_register_user",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("first_name", sa.String(length=64), nullable=False),
        sa.Column("last_name", sa.String(length=64), nullable=False),
        sa.Column("username", sa.String(length=128), nullable=False),
        sa.Column("password", sa.String(length=256), nullable=True),
        sa.Column("email", sa.String(length=320), nullable=False),
        sa.Column("registration_date", sa.DateTime(), nullable=True),
        sa.Column("registration_hash", sa.String(length=256), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("email"),
        sa.UniqueConstraint("username"),
        **TABLE,
    )
    op.create_table(
        "ab_role",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        **TABLE,
    )
    op.create_table(
        "ab_user",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("first_name", sa.String(length=64), nullable=False),
        sa.Column("last_name", sa.String(length=64), nullable=False),
        sa.Column("username", sa.String(length=128), nullable=False),
        sa.Column("password", sa.String(length=256), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=True),
        sa.Column("email", sa.String(length=320), nullable=False),
        sa.Column("last_login", sa.DateTime(), nullable=True),
        sa.Column("login_count", sa.Integer(), nullable=True),
        sa.Column("fail_login_count", sa.Integer(), nullable=True),
        sa.Column("created_on", sa.DateTime(), nullable=True),
        sa.Column("changed_on", sa.DateTime(), nullable=True),
        sa.Column("created_by_fk", sa.Integer(), nullable=True),
        sa.Column("changed_by_fk", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["changed_by_fk"], ["ab_user.id"]),
        sa.ForeignKeyConstraint(["created_by_fk"], ["ab_user.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("email"),
        sa.UniqueConstraint("username"),
        **TABLE,
    )
    op.create_table(
        "ab_view_menu",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=250), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        **TABLE,
    )
    op.create_table(
        "ab_api_key",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("key_hash", sa.String(length=256), nullable=False),
        sa.Column("lookup_hash", sa.String(length=256), nullable=True),
        sa.Column("key_prefix", sa.String(length=16), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("created_on", sa.DateTime(), nullable=True),
        sa.Column("expires_on", sa.DateTime(), nullable=True),
        sa.Column("revoked_on", sa.DateTime(), nullable=True),
        sa.Column("last_used_on", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["ab_user.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("lookup_hash"),
        sa.UniqueConstraint("uuid"),
        **TABLE,
    )
    op.create_index("idx_api_key_lookup_hash", "ab_api_key", ["lookup_hash"], unique=True, if_not_exists=True)
    op.create_index("idx_api_key_prefix", "ab_api_key", ["key_prefix"], if_not_exists=True)
    op.create_index("idx_api_key_user_id", "ab_api_key", ["user_id"], if_not_exists=True)
    op.create_table(
        "ab_group_role",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("group_id", sa.Integer(), nullable=True),
        sa.Column("role_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["group_id"], ["ab_group.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["role_id"], ["ab_role.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("group_id", "role_id"),
        **TABLE,
    )
    op.create_index("idx_group_id", "ab_group_role", ["group_id"], if_not_exists=True)
    op.create_index("idx_group_role_id", "ab_group_role", ["role_id"], if_not_exists=True)
    op.create_table(
        "ab_permission_view",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("permission_id", sa.Integer(), nullable=False),
        sa.Column("view_menu_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["permission_id"], ["ab_permission.id"]),
        sa.ForeignKeyConstraint(["view_menu_id"], ["ab_view_menu.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("permission_id", "view_menu_id"),
        **TABLE,
    )
    op.create_index("idx_permission_id", "ab_permission_view", ["permission_id"], if_not_exists=True)
    op.create_index("idx_view_menu_id", "ab_permission_view", ["view_menu_id"], if_not_exists=True)
    op.create_table(
        "ab_user_group",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("group_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["group_id"], ["ab_group.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["ab_user.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("user_id", "group_id"),
        **TABLE,
    )
    op.create_index("idx_user_group_id", "ab_user_group", ["group_id"], if_not_exists=True)
    op.create_index("idx_user_id", "ab_user_group", ["user_id"], if_not_exists=True)
    op.create_table(
        "ab_user_role",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("role_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["role_id"], ["ab_role.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["ab_user.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("user_id", "role_id"),
        **TABLE,
    )
    op.create_table(
        "ab_permission_view_role",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("permission_view_id", sa.Integer(), nullable=True),
        sa.Column("role_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["permission_view_id"], ["ab_permission_view.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["role_id"], ["ab_role.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("permission_view_id", "role_id"),
        **TABLE,
    )
    op.create_index("idx_permission_view_id", "ab_permission_view_role", ["permission_view_id"], if_not_exists=True)
    op.create_index("idx_role_id", "ab_permission_view_role", ["role_id"], if_not_exists=True)
    for sequence in sequences():
        op.execute(CreateSequence(sequence, if_not_exists=True))


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table, if_exists=True)
    for sequence in sequences():
        op.execute(DropSequence(sequence, if_exists=True))
