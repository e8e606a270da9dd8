"""A web process takes orders, a worker handles them; both connect to one directory."""

import multiprocessing
import sqlite3
import tempfile
from urllib.request import urlopen
from wsgiref.simple_server import WSGIRequestHandler, make_server

import fmq.bind


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def web(home, port):
    db = sqlite3.connect(f"{home}/shop.db")
    db.executescript("PRAGMA synchronous=EXTRA; CREATE TABLE orders (name)")
    fmq.bind.create_table(db)
    with fmq.connect(f"{home}/shop", resolve={"web": f"sqlite:///{home}/shop.db"}) as engine:

        def app(environ, start_response):
            name = environ["PATH_INFO"].strip("/")
            with engine.transaction(producer="web", bind=db) as tx:  # the row and its message
                db.execute("INSERT INTO orders VALUES (?)", (name,))
                tx.send("orders", name.encode())
            start_response("201 Created", [])
            return [b"ordered\n"]

        with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
            port.put(server.server_port)
            for _ in range(3):
                server.handle_request()


def worker(home):
    with fmq.connect(f"{home}/shop") as engine, engine.consumer("orders", group="g") as mine:
        handled = 0
        while handled < 3:
            for delivery in mine.poll(timeout=5):
                print("handled", delivery.message.body.decode(), flush=True)
                delivery.ack()
                handled += 1


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine, engine.serve():
        port = spawn.Queue()
        children = [spawn.Process(target=web, args=(home, port))]
        children += [spawn.Process(target=worker, args=(home,))]
        for child in children:
            child.start()
        at = port.get()
        for number in range(3):
            urlopen(f"http://127.0.0.1:{at}/order-{number}").close()
        for child in children:
            child.join()
