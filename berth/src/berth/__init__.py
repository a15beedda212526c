"""The command of Berth: rules in files and git, reviews, pauses and the stories of Pods, for people without a shell on the server.

It knows the REST API alone, nothing of the server's code.
"""

# As pyproject.toml has it; asking the installed package takes time, and there may be none.
VERSION = "0.1.0"
