"""Run as a script: put rows into an empty database, let the named roles in, and print which pages there are to look at, as JSON."""

import json
import sys

import django
from django.conf import settings
from django.test.utils import setup_test_environment

PASSWORD = "signs in, and is weighed"
_FEW = 2


def main(roles: list[str]) -> dict[str, object]:
    """Return each role's session, and the pages that it is shown with the kind of each."""
    from django.contrib.auth.models import Group, User

    from tests.lived_in import lived_in, pages_of
    from tests.security.people import knocking

    setup_test_environment()  # templates are noted, and its client is let in
    lived_in()
    sessions, pages = {}, {}
    signing_in = User.objects.create_user("signs-in", password=PASSWORD, is_staff=True)
    signing_in.groups.add(Group.objects.get(name="Operator"))
    for who in roles:
        client = knocking(who)
        sessions[who] = client.cookies[settings.SESSION_COOKIE_NAME].value
        # In the short form only who is shown every page looks at them.
        pages[who] = pages_of(client) if who == "superuser" or len(roles) > _FEW else {}
    return {"cookie": settings.SESSION_COOKIE_NAME, "sessions": sessions, "pages": pages, "password": PASSWORD}


if __name__ == "__main__":
    django.setup()
    sys.stdout.write(json.dumps(main(sys.argv[1:])) + "\n")
