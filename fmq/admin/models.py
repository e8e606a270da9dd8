"""Models without tables. Django's admin lists a page for each, and its permissions are theirs."""

from django.db import models


class UndecidedPage(models.Model):
    """Stands for undecided transactions."""

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        verbose_name = verbose_name_plural = "undecided transactions"


class DeadLettersPage(models.Model):
    """Stands for dead letters."""

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        verbose_name = verbose_name_plural = "dead letters"


class GroupsPage(models.Model):
    """Stands for groups of consumers."""

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        verbose_name = verbose_name_plural = "groups"
