"""Storing options in the directory: one append, as the changes of groups and topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fmq.arguments.stored_options import check_configured
from fmq.consume.administration.change_plans import Changes, Plan
from fmq.store.bytes.kinds import Changed, ChangeKind


def configure(
    changes: Changes,
    values: Mapping[str, Any],
    reset: Iterable[str] = (),
    only_new: bool = False,
) -> Plan:
    """Plan to store options for all who use the directory, and to forget the options named in
    `reset`. With `only_new`, store only options that are not stored yet. Raises BadOption.
    """
    values, reset = check_configured(values, reset)
    stored = changes.ledger.options

    def plan() -> list[Changed]:
        new = {
            name: value
            for name, value in values.items()
            if name not in stored or (not only_new and stored[name] != value)
        }
        gone = [name for name in reset if name in stored]
        text = json.dumps({"set": new, "reset": gone}, separators=(",", ":"))
        return [Changed(ChangeKind.CONFIGURE, "", "", text=text)] if new or gone else []

    return plan
