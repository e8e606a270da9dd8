"""The Django app that owns the marker table."""

from django.apps import AppConfig

from fmq.bind.django.system_check import register


class Config(AppConfig):
    """The configuration of the app, with the label "fmq" instead of the folder's name "django"."""

    name = "fmq.bind.django"
    label = "fmq"

    def ready(self) -> None:
        """Register the system check."""
        register()
