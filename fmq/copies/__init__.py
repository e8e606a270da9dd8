"""Backups of a journal beside its engine, and directories that are made of them again."""

from fmq.copies.backups import Backup, backup
from fmq.copies.restores import Restored, restore
from fmq.copies.salvages import Salvaged, salvage

__all__ = ["Backup", "Restored", "Salvaged", "backup", "restore", "salvage"]
