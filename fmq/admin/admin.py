"""The pages as Django's admin wants them: who may see them, and a form that asks before an act."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path

import fmq
from fmq.admin.models import DeadLettersPage, GroupsPage, UndecidedPage
from fmq.admin.pages import DEAD_LETTERS, GROUPS, UNDECIDED, ShownPage, ShownRow
from fmq.admin.settings_engine import directory, reading, writing

CHOSEN_MAX = 1000


class PageAdmin(admin.ModelAdmin):
    """Shows one page. Users with the permission to change it have its acts."""

    page: ClassVar[ShownPage]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def get_urls(self) -> list[Any]:
        """Return the address of the list: there are no pages of single lines."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the page, or carry out one of its acts."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        may_act = self.has_change_permission(request)
        if request.method == "POST":
            if not may_act:
                raise PermissionDenied
            return self._act(request)
        rows: list[ShownRow] = []
        try:
            with reading() as engine:
                rows = list(self.page.rows(engine))
        except fmq.FmqError as error:
            messages.error(request, str(error))
        more = {"rows": rows, "may_act": may_act, "directory": directory()}
        return self._shown(request, "fmq_admin/table.html", more | (extra_context or {}))

    def _shown(self, request: HttpRequest, template: str, more: dict[str, Any]) -> HttpResponse:
        title = str(self.opts.verbose_name_plural).capitalize()
        context = self.admin_site.each_context(request)
        context |= {"title": title, "opts": self.opts, "page": self.page}
        return TemplateResponse(request, template, context | more)

    def _act(self, request: HttpRequest) -> HttpResponse:
        """Ask once more, or carry out what was asked."""
        back = HttpResponseRedirect(request.path)
        act = self.page.acts.get(request.POST.get("act", ""))
        chosen = request.POST.getlist("chosen")[:CHOSEN_MAX]
        if act is None or not chosen:
            messages.warning(request, "Choose an act, and one line at least. Nothing was changed.")
            return back
        reason = request.POST.get("reason", "").strip()
        if not reason:
            more = {"act": act, "name": request.POST["act"], "chosen": chosen}
            return self._shown(request, "fmq_admin/confirm.html", more)
        try:
            keys = [json.loads(each) for each in chosen]
            with writing() as engine:
                act.carry_out(engine, keys, reason, request.user.get_username())
        except (fmq.FmqError, ValueError, TypeError) as error:
            messages.error(request, str(error))
        else:
            messages.success(request, f"{act.label}: done for {len(chosen)}.")
        return back


def _register(model: type, page: ShownPage) -> None:
    admin.site.register(model, type(f"{model.__name__}Admin", (PageAdmin,), {"page": page}))


_register(UndecidedPage, UNDECIDED)
_register(DeadLettersPage, DEAD_LETTERS)
_register(GroupsPage, GROUPS)
