"""The extender's WSGI application. Importing it starts the process's runtime, so it is imported in the worker only."""

import atexit
import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
os.environ.setdefault("BERTH_ROLE", "extender")

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()

from scheduler.extender.urls import runtime  # noqa: E402 - needs the apps that were just loaded

runtime.start()
atexit.register(runtime.stop)
