"""The app of Django's that has the marker table."""

from django.apps import AppConfig


class Config(AppConfig):
    """Named after the project, as "django" would be the name of its folder."""

    name = "fmq.bind.django"
    label = "fmq"
