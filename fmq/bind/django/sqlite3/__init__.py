"""A database backend, ENGINE = "fmq.bind.django.sqlite3": Django's own, with outboxes."""
