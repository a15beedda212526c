"""URLs of the admin server: pages, REST and probes."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from controlplane import health, openapi, palette, profile_pages, provider, token_pages

# The pages register themselves when they are imported. Only processes with these URLs need them.
admin.autodiscover()

# Before the admin's own URL: this sign-out also signs out at the provider.
_provider = [
    path("admin/logout/", provider.SignOut.as_view()),
    path("oidc/", include("mozilla_django_oidc.urls")),
]

urlpatterns = [
    *(_provider if settings.BERTH.oidc_issuer else []),
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("admin/scheduler/", include("scheduler.admin.urls")),
    path("admin/policies/", include("policies.admin.urls")),
    path("admin/password_change/", profile_pages.change_password),
    # Before the admin's own URL, which caches results for minutes.
    path("admin/search/", palette.search),
    path("admin/profile/", profile_pages.page, name="profile"),
    path("admin/profile/end-others/", profile_pages.end_others, name="sessions_end_others"),
    path("admin/profile/<str:name>/end/", profile_pages.end, name="session_end"),
    path("admin/tokens/", token_pages.page, name="tokens"),
    path("admin/tokens/make/", token_pages.make, name="token_make"),
    path("admin/tokens/<int:number>/revoke/", token_pages.revoke, name="token_revoke"),
    path("admin/", admin.site.urls),
    # First, so that changes/apply isn't matched as the number of a Change.
    path("api/v1/", include("scheduler.api.urls")),
    path("api/v1/", include("policies.api.urls")),
    path("api/schema/", openapi.schema, name="schema"),
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
]

handler400 = "controlplane.errors.bad_request"
handler403 = "controlplane.errors.forbidden"
handler404 = "controlplane.errors.not_found"
handler500 = "controlplane.errors.fault"
