"""Pages in Django's admin about undecided transactions, dead letters and groups, and system checks.

INSTALLED_APPS = [..., "django.contrib.admin", "fmq.admin"]
FMQ_DIR = "/var/lib/shop/queue"
"""
