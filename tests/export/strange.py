"""A journal with topics, keys and bodies that are hard to write down."""

import fmq

TOPICS = (
    "a/b", "..", ".hidden", "_private", "__HIVE_DEFAULT_PARTITION__", "123", "1.5", "a=b", "100%",
    "50%2F", "ö日本 🜁", "quote\"'back\\slash", "[x]{y}^#*?:", "a b", " ", "2026-01-31", "null",
)  # fmt: skip
TEXTS = (
    "", " ", "plain", "a,b", 'say "x"', '"', '""', "\\", '\\"', "line\nline", "a\rb", "\r\n", "\t",
    " spaces ", "null", "NaN", "1", "true", "ö日本 🜁", "\x01\x1f\x7f\u2028", "{}", "#", "--", "'",
)  # fmt: skip


def fill_strangely(path: str) -> None:
    with fmq.open(path, fmq.Options(segment_bytes=64 * 1024)) as engine:
        for topic in TOPICS:
            engine.send(topic, topic.encode(), key=topic)
        for text in TEXTS:
            engine.send("texts", text.encode(), key=text, tag=text, headers={text or "empty": text})
        engine.send("texts", b"without")
        with engine.transaction(tx_id="'\",\\", producer='"') as tx:
            tx.send_many("texts", [text.encode() for text in TEXTS])


def fill_with_bytes(path: str) -> None:
    """Bodies that are no text."""
    with fmq.open(path) as engine:
        engine.send_many("bytes", [b"text", b"\xff\x00", b"more text"])
