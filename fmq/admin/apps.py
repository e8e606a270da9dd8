"""The Django app of the pages."""

from django.apps import AppConfig


class AdminConfig(AppConfig):
    """The configuration of the app."""

    name = "fmq.admin"
    label = "fmq_admin"
    verbose_name = "Messages"
    default_auto_field = "django.db.models.AutoField"

    def ready(self) -> None:
        """Register the system checks."""
        from fmq.admin.directory_checks import register  # Django must be set up before

        register()
