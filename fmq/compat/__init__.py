"""fmq in the place of task queues that people already use.

`Queue` has the interface of `queue.Queue`. `fmq.compat.huey` and `fmq.compat.kombu` are for huey,
Celery and kombu, which have to be installed: the extras `huey` and `kombu`.
"""

from fmq.compat.queue import Empty, Full, Queue, ShutDown, Undecodable

__all__ = ["Empty", "Full", "Queue", "ShutDown", "Undecodable"]
