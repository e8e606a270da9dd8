"""A database backend, ENGINE = "fmq.bind.django.postgresql": Django's own, with outboxes."""
