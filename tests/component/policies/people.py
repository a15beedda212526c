"""People who write and review Changes."""

from django.contrib.auth.models import Group, User


def person(name: str, role: str) -> User:
    """Return a new account with a role."""
    user = User.objects.create_user(name)
    user.groups.add(Group.objects.get(name=role))
    return user
