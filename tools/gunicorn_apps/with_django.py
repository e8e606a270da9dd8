"""A shop with Django: a request makes an order and its message, in a block of fmq's."""

import os

import django
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path

import fmq
import fmq.bind.django

HOME = os.environ["HOME_OF_SHOP"]
SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": f"{HOME}/shop.db",
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


def order(request: HttpRequest, name: str) -> HttpResponse:
    with fmq.bind.django.atomic(engine, producer="shop") as tx:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [name])
        tx.send("orders", name.encode())
    return HttpResponse("ordered\n", status=201)


urlpatterns = [path("<str:name>", order)]
application = get_wsgi_application()


def prepare() -> None:
    """Make the tables, once, before any server starts."""
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (name TEXT PRIMARY KEY)")
    connection.close()
