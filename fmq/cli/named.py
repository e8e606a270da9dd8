"""What an argument such as `package:function` names."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import fmq


def object_at(where: str, undone: str) -> Any:
    """Return what `package:name` names. The present directory counts, as for Python."""
    module, _, name = where.partition(":")
    sys.path.insert(0, "")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise fmq.BadOption(f"{where!r}: no such function ({error}). {undone}") from error
    finally:
        sys.path.remove("")
