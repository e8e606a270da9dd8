"""Which place an address means: a directory, or a bucket of an object store."""

from __future__ import annotations

import re

from fmq.arguments.path import check_local
from fmq.copies.ship_pieces import PlaceInDirectory, ShippingPlace
from fmq.errors import BadName, BadOption
from fmq.machine.disk import Disk

S3 = re.compile(r"s3:/+([^/]+)/*(.*?)/*")  # one slash is enough: pathlib makes one of two

OTHER_STORES = re.compile(r"(gs|az)://")


def address_of(text: str) -> str:
    """Return the address `text` in its normal form. Raises BadName if it is no such address."""
    bucket = S3.fullmatch(text)
    if bucket is None:
        if OTHER_STORES.match(text):
            raise BadName(
                f"{text!r}: an address to which no journal is shipped, but to a directory or "
                "s3://. Nothing was changed. Into this store goes a home, by home= or `fmq move`, "
                "an export, by `fmq export`, or a table, by `fmq deliver`."
            )
        return check_local(text)
    return "s3://" + "/".join(filter(None, bucket.groups()))


def place_to_ship_to(address: str, disk: Disk) -> ShippingPlace:
    """Return the place, which no other process of this machine ships to. A directory is made."""
    bucket = S3.fullmatch(address)
    if bucket is not None:
        return _in_bucket(*bucket.groups())
    place = PlaceInDirectory(disk.directory(address, make=True))
    try:
        place.pin()
    except BaseException:
        place.close()
        raise
    return place


def place_to_read(address: str, disk: Disk) -> ShippingPlace:
    """Return the place for a restore. Nothing is written to it."""
    bucket = S3.fullmatch(address)
    if bucket is not None:
        return _in_bucket(*bucket.groups())
    return PlaceInDirectory(disk.directory(address, make=False))


def _in_bucket(bucket: str, prefix: str) -> ShippingPlace:
    try:
        from fmq.copies.bucket_place import PlaceInBucket
    except ImportError as error:
        raise BadOption(
            f"s3://{bucket}/{prefix}: boto3, the client of object stores, cannot be imported "
            f"({error}). Nothing was changed. Install it: pip install 'fmq-engine[s3]'."
        ) from error
    return PlaceInBucket(bucket, prefix)
