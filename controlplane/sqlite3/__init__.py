"""The database backend for SQLite, which `ENGINE` of the settings names."""
