"""Run as a script: put rows into an empty database, let the named roles in, and print which pages there are to look at, as JSON."""

import json
import sys

import django
from django.conf import settings
from django.test.utils import setup_test_environment

PASSWORD = "signs in, and is weighed"


def main(looking: list[str]) -> dict[str, object]:
    """Return each role's session, and the pages that those are shown who look at them, with the kind of each."""
    from django.contrib.auth.models import Group, User

    from tests.lived_in import lived_in, pages_of
    from tests.security.people import PEOPLE, knocking

    setup_test_environment()  # templates are noted, and its client is let in
    lived_in()
    signing_in = User.objects.create_user("signs-in", password=PASSWORD, is_staff=True)
    signing_in.groups.add(Group.objects.get(name="Operator"))
    clients = {who: knocking(who) for who in PEOPLE if who != "nobody"}
    sessions = {who: client.cookies[settings.SESSION_COOKIE_NAME].value for who, client in clients.items()}
    pages = {who: pages_of(clients[who]) for who in looking}
    return {"cookie": settings.SESSION_COOKIE_NAME, "sessions": sessions, "pages": pages, "password": PASSWORD}


if __name__ == "__main__":
    django.setup()
    sys.stdout.write(json.dumps(main(sys.argv[1:])) + "\n")
