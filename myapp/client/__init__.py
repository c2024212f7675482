"""The `cube` command's client half: speaks HTTP to a platform, imports nothing of its server."""
