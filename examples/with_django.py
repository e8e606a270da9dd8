"""Django: the outermost atomic block commits rows and messages together."""

import tempfile

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection

import fmq
import fmq.bind.django


def order(engine, name):
    """What a view does."""
    with fmq.bind.django.atomic(engine, producer="shop") as tx:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [name])
        tx.send("orders", name.encode())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/queue") as own, own.serve():
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{home}/shop.db"}
        database["OPTIONS"] = {"init_command": "PRAGMA synchronous=EXTRA"}
        settings.configure(DATABASES={"default": database}, INSTALLED_APPS=["fmq.bind.django"])
        django.setup()
        call_command("migrate", verbosity=0)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE orders (name text)")
        # In an application this is at the top of a module, with lazy=True.
        with fmq.connect(f"{home}/queue", resolve={"shop": "django://default"}) as engine:
            for name in ("ada", "bob"):
                order(engine, name)
        with connection.cursor() as cursor:
            print(cursor.execute("SELECT name FROM orders").fetchall())
        print([bytes(message.body).decode() for message in own.read("orders")])
        connection.close()
