"""Backups of a journal beside its engine, and directories that are made of them again."""

from fmq.copies.backups import Backup, Progress, back_up, backup
from fmq.copies.restores import Restored, restore
from fmq.copies.salvages import Salvaged, salvage
from fmq.copies.ships import Shipped, forget_shipping, ship

__all__ = [
    "Backup",
    "Progress",
    "Restored",
    "Salvaged",
    "Shipped",
    "back_up",
    "backup",
    "forget_shipping",
    "restore",
    "salvage",
    "ship",
]
