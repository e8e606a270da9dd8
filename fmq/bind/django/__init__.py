"""Messages that become visible if, and only if, an `atomic` block of Django commits.

`atomic` is a block like Django's. `attach` makes an outbox, whose messages commit with blocks that
are Django's own. With "fmq.bind.django" in INSTALLED_APPS, `migrate` makes the marker table.
"""

try:
    import django  # noqa: F401
except ImportError as error:
    raise ImportError(
        "fmq.bind.django needs Django: pip install 'fmq-engine[django]'. Nothing was changed."
    ) from error

from fmq.bind.django.block import atomic
from fmq.bind.django.connection import OutboxConnection
from fmq.bind.django.outbox import DjangoOutbox, attach

__all__ = ["DjangoOutbox", "OutboxConnection", "atomic", "attach"]
