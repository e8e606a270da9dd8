"""A project of Django's with its admin and the pages of fmq: a child of test_admin.py."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.urls import path

import fmq

PLACE = sys.argv[1]
settings.configure(
    SECRET_KEY="of a test",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["testserver"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=[
        *("django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes"),
        *("django.contrib.sessions", "django.contrib.messages", "fmq.admin"),
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    FMQ_DIR=f"{PLACE}/queue",
    FMQ_OPTIONS=fmq.Options(lease_seconds=30),
    USE_TZ=True,
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.auth.models import Permission, User  # noqa: E402
from django.core.checks import run_checks  # noqa: E402
from django.test import Client  # noqa: E402

from fmq.admin.directory_checks import remote_warnings  # noqa: E402

urlpatterns = [path("admin/", admin.site.urls)]
HOME = "/admin/fmq_admin/"
told: dict[str, Any] = {}


def client_of(name: str, *permissions: str, boss: bool = False) -> Client:
    user = User(username=name, is_staff=True, is_superuser=boss)
    user.set_password("p")
    user.save()
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    assert client.login(username=name, password="p")
    return client


def keys(page: str) -> list[str]:
    found = re.findall(r'name="chosen" value="([^"]*)"', page)
    return [each.replace("&quot;", '"') for each in found]


def page(client: Client, name: str) -> str:
    text: str = client.get(HOME + name).content.decode()
    return text


call_command("migrate", verbosity=0)
found = [each for each in run_checks() if each.id.startswith("fmq.")]
told["checks"] = [each.id for each in found]
told["check"] = found[0].msg if found else ""
mount = "36 35 98:0 / /srv/nfs rw - nfs4 server:/x rw\n"
told["remote"] = [each.id for each in remote_warnings("/srv/nfs/queue", mount)]

told["nobody"] = Client().get(HOME + "undecidedpage/").status_code
told["staff without permissions"] = client_of("none").get(HOME + "undecidedpage/").status_code
viewer = client_of("viewer", "view_undecidedpage")
told["viewer sees"] = viewer.get(HOME + "undecidedpage/").status_code
told["viewer's page"] = page(viewer, "undecidedpage/")
boss = client_of("boss", boss=True)
told["undecided"] = page(boss, "undecidedpage/")
told["letters"] = page(boss, "deadletterspage/")
told["groups"] = page(boss, "groupspage/")
told["index"] = sorted(
    re.findall(r">(Dead letters|Groups|Undecided transactions)<", page(boss, ""))
)
told["index"] = sorted({each.lower() for each in told["index"]})

first = next(each for each in keys(told["undecided"]) if "order-1" in each)
form = {"act": "commit", "chosen": [first]}
told["viewer acts"] = viewer.post(HOME + "undecidedpage/", form | {"reason": "x"}).status_code
told["asked"] = boss.post(HOME + "undecidedpage/", form).content.decode()
told["after asking"] = len(keys(page(boss, "undecidedpage/")))
boss.post(HOME + "undecidedpage/", form | {"reason": "paid by phone"})
again = {"act": "rollback", "chosen": [first], "reason": "or not"}
told["decided again"] = boss.post(HOME + "undecidedpage/", again, follow=True).content.decode()
letter = keys(told["letters"])[0]
boss.post(HOME + "deadletterspage/", {"act": "replay", "chosen": [letter], "reason": "mended"})
pause = {"act": "pause", "chosen": ['"mail"'], "reason": "a visit"}
boss.post(HOME + "groupspage/", pause)
print(json.dumps(told))
