"""Django's own blocks: an outbox sends when the outermost one commits, as with ATOMIC_REQUESTS."""

import tempfile

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction

import fmq
import fmq.bind.django


@transaction.atomic
def request(name):
    """What a view does with ATOMIC_REQUESTS, which puts this block around it."""
    connection.cursor().execute("INSERT INTO orders VALUES (%s)", [name])
    with transaction.atomic():  # a savepoint
        outbox.transaction().send("orders", name.encode())
    if name == "eve":
        transaction.set_rollback(True)  # as an error would: the row goes, and the message with it


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/queue") as engine:
        database = {"ENGINE": "fmq.bind.django.sqlite3", "NAME": f"{home}/shop.db"}
        database["OPTIONS"] = {"init_command": "PRAGMA synchronous=EXTRA"}
        settings.configure(DATABASES={"default": database}, INSTALLED_APPS=["fmq.bind.django"])
        django.setup()
        call_command("migrate", verbosity=0)
        connection.cursor().execute("CREATE TABLE orders (name text)")
        # In an application these are at the top of a module, with fmq.connect and lazy=True.
        outbox = fmq.bind.django.attach(engine, producer="shop")
        outbox.register()  # only SQLite needs it, once for each database
        for name in ("ada", "eve", "bob"):
            request(name)
        print(connection.cursor().execute("SELECT name FROM orders").fetchall())
        print([bytes(message.body).decode() for message in engine.read("orders")])
        connection.close()
