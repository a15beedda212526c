"""The admin server's WSGI entry."""

import os

from django.core.wsgi import get_wsgi_application

from controlplane.starts import record_start_of

os.environ.setdefault("BERTH_ROLE", "admin")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
application = get_wsgi_application()
record_start_of("admin")
