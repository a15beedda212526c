"""Licences: what Berth runs on may be used by software under Apache-2.0, and is passed on unchanged where that is asked."""

import re

from tests.architecture.licences import licence, runtime_packages

PERMISSIVE = re.compile(
    r"Apache|Apache Software License|\bMIT\b|MIT-0|BSD|0BSD|ISC|PSF|Python Software Foundation|Zlib|CC0|Dual License"
)
# Weak copyleft: used as it comes, which is all that it asks of us.
UNCHANGED = {
    "certifi": "MPL-2.0",
    "mozilla-django-oidc": "MPL-2.0",
    "psycopg": "LGPL-3.0-only",
    "psycopg-binary": "LGPL-3.0-only",
}
COPYLEFT = re.compile(r"\b[AL]?GPL|MPL|EUPL|SSPL|BUSL|Business Source|Commons Clause", re.IGNORECASE)


def test_every_package_that_runs_may_be_used_under_apache_2() -> None:
    packages = runtime_packages()
    assert {"django", "celery", "yarl", "psycopg-binary"} <= set(packages), "the lock's own dependencies are followed"
    found = {name: licence(name) for name in packages}
    refused = {
        name: said
        for name, said in found.items()
        if said is not None and name not in UNCHANGED and (COPYLEFT.search(said) or not PERMISSIVE.search(said))
    }
    assert refused == {}
    assert {name: found[name] for name in UNCHANGED} == UNCHANGED
