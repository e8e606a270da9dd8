"""A shop with Django: a request makes an order and its message, by ATOMIC_REQUESTS."""

import os
from contextlib import suppress

import django
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

import fmq
import fmq.bind.django

HOME = os.environ["HOME_OF_SHOP"]
SQLITE = {
    "ENGINE": "fmq.bind.django.sqlite3",
    "NAME": f"{HOME}/shop.db",
    "ATOMIC_REQUESTS": True,
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
    },
}
settings.configure(
    DATABASES={"default": SQLITE},
    INSTALLED_APPS=["fmq.bind.django"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a shop that is gone tomorrow",
    ALLOWED_HOSTS=["*"],
)
django.setup()

# Each worker imports this, or the master before it forks (--preload).
engine = fmq.connect(f"{HOME}/queue", resolve={"shop": "django://default"}, lazy=True)


outbox = fmq.bind.django.attach(engine, producer="shop")


def order(request: HttpRequest, name: str) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s)", [name])
    with transaction.atomic():
        outbox.transaction().send("orders", name.encode())
    with suppress(fmq.RollBack), transaction.atomic():
        outbox.transaction().send("orders", b"of a savepoint that is rolled back")
        raise fmq.RollBack
    return HttpResponse("ordered\n", status=201)


urlpatterns = [path("<str:name>", order)]
application = get_wsgi_application()


def prepare() -> None:
    """Make the tables, and register the producer, once, before any server starts."""
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (name TEXT PRIMARY KEY)")
    outbox.register()
    connection.close()
    engine.close()
