"""Queries of what belongs to tenants. Every reader takes a `TenantScope`; a test enumerates them."""
