"""`Authorization: Bearer` for REST: authentication and throttling."""

from typing import Any

from django.conf import settings
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import APIException, AuthenticationFailed, Throttled
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from controlplane.accounts import counted_address
from controlplane.models import Holder
from controlplane.tokens import MARK, Caller, RefusedError, caller_of
from policies.publishing import OnBehalf

_MAX_LENGTH = 8192
# Reviews are counted per minute.
_SECONDS_TO_WAIT = 60
_NO_SECRET = "Authorization: Bearer takes one token, without a space in it."  # noqa: S105 - a sentence


class CannotTell(APIException):
    """The owner of the token can't be determined now."""

    status_code = 503


class BearerAuthentication(BaseAuthentication):
    """Authenticates by a token: `request.user` is its owner, with only the permissions that its scopes allow; `request.auth` is OnBehalf.

    A client with a token has no session, so CSRF isn't checked.
    """

    def authenticate(self, request: Request) -> tuple[Holder, OnBehalf] | None:
        """Return the user and the token; None for a request without a token.

        Raises:
            AuthenticationFailed: the token isn't valid. Other credentials of the request aren't tried then.
            CannotTell: it is a Kubernetes token, and the API server can't be reached.
            Throttled: it is a Kubernetes token, and too many such tokens were rejected.
        """
        keyword, _, given = get_authorization_header(request).partition(b" ")
        if keyword.lower() != b"bearer":
            return None
        try:
            secret = given.strip().decode("ascii")
        except UnicodeError:
            secret = ""
        if not secret or " " in secret or len(secret) > _MAX_LENGTH:
            raise AuthenticationFailed(_NO_SECRET)
        try:
            caller = _caller(secret, request)
        except RefusedError as error:
            raise AuthenticationFailed(str(error)) from error
        return caller.holder, caller.acts

    def authenticate_header(self, request: Request) -> str:
        """Return the WWW-Authenticate header of a 401 (RFC 6750, section 3)."""
        sent = get_authorization_header(request)[:7].lower() == b"bearer "
        return 'Bearer realm="Berth"' + (', error="invalid_token"' if sent else "")


def _caller(secret: str, request: Request) -> Caller:
    if secret.startswith(MARK) or not settings.BERTH.token_review_audience:
        return caller_of(secret, now=timezone.now())
    # Imported where it is used: the Kubernetes client takes long to load, and few requests need it.
    from controlplane.token_review import AwayError, TooOftenError, caller_of_review

    try:
        return caller_of_review(secret, counted_address(request))
    except AwayError as error:
        raise CannotTell(str(error)) from error
    except TooOftenError as error:
        raise Throttled(_SECONDS_TO_WAIT, str(error)) from error


class TokenThrottle(SimpleRateThrottle):
    """Limits the requests per minute of all tokens of an account, in each process. People with a session aren't counted.

    With a limit for each token, an account could multiply its requests by making tokens.
    """

    scope = "token"

    def get_rate(self) -> str:
        """Return the limit."""
        return f"{settings.BERTH.token_requests_per_minute}/min"

    def get_cache_key(self, request: Request, view: Any) -> Any:
        """Return the key under which a request is counted; None for one that isn't counted."""
        if not isinstance(request.auth, OnBehalf):
            return None
        return self.cache_format % {"scope": self.scope, "ident": request.user.pk}
