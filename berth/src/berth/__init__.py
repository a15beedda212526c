"""The command of Berth: rules in files and git, reviews, pauses and the stories of Pods, for people without a shell on the server.

It knows the REST API alone, nothing of the server's code.
"""
