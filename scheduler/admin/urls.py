"""Paths of the pages that aren't about one kind of row, below /admin/scheduler/."""

from django.urls import path

from scheduler.admin import backtests, doctor, priority_classes, queue, scenario, shadows, storage, which

urlpatterns = [
    path("backtests/", backtests.page, name="backtests"),
    path("backtests/start/", backtests.start, name="backtest_start"),
    path("backtests/<int:number>/", backtests.detail, name="backtest"),
    path("backtests/<int:number>/progress/", backtests.progress, name="backtest_progress"),
    path("backtests/<int:number>/cancel/", backtests.cancel, name="backtest_cancel"),
    path("backtests/<int:number>/pods.csv", backtests.table, name="backtest_table"),
    path("scenario/", scenario.page, name="scenario"),
    path("doctor/", doctor.wiring, name="doctor"),
    path("doctor/canary/", doctor.canary, name="doctor_canary"),
    path("doctor/configuration/", doctor.configuration, name="doctor_configuration"),
    path("doctor/lint/", doctor.lint_page, name="doctor_lint"),
    path("queue/", queue.page, name="queue"),
    path("priority-classes/adopt/", priority_classes.adopt, name="cluster_priority_classes_adopt"),
    path("priority-classes/<str:name>/", priority_classes.page, name="cluster_priority_class"),
    path("priority-classes/<str:name>/count/", priority_classes.count, name="cluster_priority_class_count"),
    path("priority-classes/<str:name>/put-back/", priority_classes.put_back, name="cluster_priority_class_put_back"),
    path(
        "priority-classes/<str:name>/go-back/<int:number>/",
        priority_classes.go_back,
        name="cluster_priority_class_go_back",
    ),
    path("shadows/", shadows.page, name="shadows"),
    path("storage/", storage.storage, name="storage"),
    path("legal-holds/", storage.holds, name="legal_holds"),
    path("legal-holds/make/", storage.make, name="legal_hold_make"),
    path("legal-holds/<int:number>/lift/", storage.lift, name="legal_hold_lift"),
    path("which/", which.page, name="which"),
]
