"""The admin server's WSGI entry."""

import os

from controlplane.starts import record_start_of
from scheduler.http_server.application import make_application

os.environ.setdefault("BERTH_ROLE", "admin")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
application = make_application()
record_start_of("admin")
