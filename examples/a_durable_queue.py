"""A `queue.Queue` that outlives its process: workers take from it, what fails comes again."""

import tempfile
import threading

import fmq
from fmq.compat import Queue, ShutDown

with tempfile.TemporaryDirectory() as home:
    with fmq.open(f"{home}/jobs") as engine:
        for number in range(5):
            Queue(engine).put({"number": number})

    with fmq.open(f"{home}/jobs") as engine:  # another process, a day later
        queue, squares = Queue(engine, ack="task_done"), []

        def work():
            try:
                while True:
                    squares.append(queue.get()["number"] ** 2)
                    queue.task_done()
            except ShutDown:
                pass

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        queue.join()
        queue.shutdown()
        for worker in workers:
            worker.join()
        print(sorted(squares))
