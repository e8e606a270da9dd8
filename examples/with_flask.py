"""Flask: the row of an order and its message are committed together; each process connects."""

import sqlite3
import tempfile

from flask import Flask

import fmq.bind


def make_app(home):
    engine = fmq.connect(f"{home}/queue", resolve={"shop": f"sqlite:///{home}/shop.db"})
    app = Flask(__name__)

    @app.post("/orders/<name>")
    def order(name):
        db = sqlite3.connect(f"{home}/shop.db")
        try:
            with engine.transaction(producer="shop", bind=db) as tx:
                db.execute("INSERT INTO orders VALUES (?)", (name,))
                tx.send("orders", name.encode())
        finally:
            db.close()
        return "ordered", 201

    return app, engine


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/queue") as own, own.serve():
        db = sqlite3.connect(f"{home}/shop.db")
        db.executescript("PRAGMA journal_mode=WAL; CREATE TABLE orders (name)")
        fmq.bind.create_table(db)
        app, engine = make_app(home)
        with engine, app.test_client() as client:
            for name in ("ada", "bob"):
                assert client.post(f"/orders/{name}").status_code == 201
        print([bytes(message.body).decode() for message in own.read("orders")])
        print(db.execute("SELECT name FROM orders").fetchall())
        db.close()
