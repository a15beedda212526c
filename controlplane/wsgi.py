"""The admin server's WSGI entry."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("BERTH_ROLE", "admin")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
application = get_wsgi_application()
