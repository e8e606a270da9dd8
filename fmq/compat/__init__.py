"""fmq as the back end of task queues that people already use.

`Queue` has the interface of `queue.Queue`. `fmq.compat.huey`, `fmq.compat.kombu` and
`fmq.compat.taskiq` are for huey, Celery and kombu, and taskiq, which have to be installed: the
extras `huey`, `kombu` and `taskiq`.
"""

from fmq.compat.queue import Empty, Full, Queue, ShutDown, Undecodable

__all__ = ["Empty", "Full", "Queue", "ShutDown", "Undecodable"]
