"""URLs of the pages that aren't about one kind of row, below /admin/policies/."""

from django.urls import path

from policies.admin import audit, compare, pauses, people, text

urlpatterns = [
    path("rule-set-text/<slug:name>/", text.page, name="rule_set_text"),
    path("rule-set-text/<slug:name>/check/", text.check, name="rule_set_text_check"),
    path("audit/", audit.page, name="audit"),
    path("audit/<uuid:key>/", audit.event, name="audit_event"),
    path("people/<str:name>/", people.page, name="person"),
    path("compare/", compare.page, name="compare"),
    path("pauses/", pauses.page, name="pauses"),
    path("pauses/pause/", pauses.pause, name="pause"),
    path("pauses/resume/", pauses.resume, name="resume"),
    path("pauses/exempt/", pauses.exempt, name="exempt"),
    path("pauses/end-exemption/", pauses.end_exemption, name="end_exemption"),
]
