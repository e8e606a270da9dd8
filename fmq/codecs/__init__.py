"""Codecs: how the bodies of a topic are made of values, and values of bodies.

    json()             any value that JSON has
    json(dict)         the same, and it must be a dict
    dataclass(Order)   a dataclass, as a JSON object
    msgspec(Order)     what msgspec can write as JSON; needs the extra `msgspec`
    pydantic(Order)    what pydantic can write as JSON; needs the extra `pydantic`

`engine.topic("orders", codec=dataclass(Order))` stores the codec's name with the topic, and returns
a handle that sends and reads values. Any object with a `name`, `encode` and `decode` is a codec,
too. Codecs know nothing about engines.
"""

from fmq.codecs.codec import Codec
from fmq.codecs.dataclass_codec import dataclass
from fmq.codecs.json_codec import json
from fmq.codecs.msgspec_codec import msgspec
from fmq.codecs.pydantic_codec import pydantic

__all__ = ["Codec", "dataclass", "json", "msgspec", "pydantic"]
