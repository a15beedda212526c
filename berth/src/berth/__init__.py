"""Berth's command: rules in files and git, reviews, pauses and the stories of Pods, without a shell on the server.

It uses only the REST API, and none of the server's code.
"""

# The same as in pyproject.toml; reading the installed package's metadata takes time, and it may not be installed.
VERSION = "0.1.0"
