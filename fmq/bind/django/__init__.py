"""Django: messages that exist if, and only if, a block of `atomic` committed.

In INSTALLED_APPS, "fmq.bind.django" brings the migration that makes the marker table.
"""

from fmq.bind.django.block import atomic

__all__ = ["atomic"]
