"""REST: each door through Django's client, on a database."""
