"""An Iceberg table in Azure's blobs. The server is Azurite.

Deltalake cannot write there: it lists a log from a name on, which Azurite does not know. pyarrow
cannot read by an address: it shows a token, for which Azurite wants TLS.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import fmq.lake
import fmq.table
from tests.buckets.conftest import LARGER
from tests.lake.conftest import add_to
from tools.home_servers import ACCOUNT, KEY, AzuriteHome, missing

pytestmark = pytest.mark.skipif(bool(missing("azurite")), reason=missing("azurite"))


def test_an_iceberg_table_is_delivered_to_and_audited(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    for name in ("ACCOUNT_NAME", "ACCOUNT_KEY", "ENDPOINT"):
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", "")  # so that it is undone
    azurite = AzuriteHome(tmp_path)
    host = os.environ["AZURE_STORAGE_ENDPOINT"].split("/")[2]
    options = {
        "warehouse": "abfs://homes/tables",
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        "adls.account-name": ACCOUNT,
        "adls.account-key": KEY,
        "adls.blob-storage-authority": host,
        "adls.dfs-storage-authority": host,
        "adls.blob-storage-scheme": "http",
        "adls.dfs-storage-scheme": "http",
    }
    url = str(tmp_path / "catalog" / "shop.messages")
    try:
        for _ in range(2):
            how: Any = {"to": "iceberg", "options": options}
            fmq.lake.deliver(str(shop), url, once=True, rows=100, **how)
            seen = fmq.lake.audit(str(shop), url, **how)
            assert seen.ok and seen.rows == fmq.table.read(str(shop)).read_all().num_rows
            add_to(shop, 3, LARGER)
    finally:
        azurite.end()
