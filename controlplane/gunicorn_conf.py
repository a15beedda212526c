"""gunicorn for the admin and the REST API."""

bind = "127.0.0.1:8000"
workers = 1
worker_class = "scheduler.http_server.worker.Worker"
threads = 8
worker_connections = 512
backlog = 4096
keepalive = 15
timeout = 60
graceful_timeout = 10
# Another process of the same user would be hindered by the socket that newer versions open.
control_socket_disable = True
