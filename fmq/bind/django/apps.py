"""The Django app that owns the marker table."""

from django.apps import AppConfig


class Config(AppConfig):
    """The configuration of the app, with the label "fmq" in the place of the folder's "django"."""

    name = "fmq.bind.django"
    label = "fmq"
