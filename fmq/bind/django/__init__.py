"""Django's `atomic` with messages: they are visible if, and only if, the block committed.

With "fmq.bind.django" in INSTALLED_APPS, `migrate` makes the marker table.
"""

from fmq.bind.django.block import atomic

__all__ = ["atomic"]
