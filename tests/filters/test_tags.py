"""Filters of tags: the parsing of RocketMQ's FilterAPI, and tags compared as strings."""

import copy
import pickle

import pytest

from fmq import filters
from fmq.errors import BadFilter
from fmq.filters.filter import TEXT_CHARACTERS_MAX

WANTED = {
    # FilterAPITest (apache/rocketmq, remoting/src/test/.../protocol/filter/FilterAPITest.java)
    "TAG1 || Tag2 || tag3": {"TAG1", "Tag2", "tag3"},  # testBuildSubscriptionData
    "A || B": {"A", "B"},  # testBuildTagSome
    # What buildSubscriptionData does, read from its source.
    "a": {"a"},
    "a||b": {"a", "b"},
    " a\t||\n b ": {"a", "b"},
    "|| a || || b ||": {"a", "b"},
    "a | b": {"a | b"},
    "a|||b": {"a", "|b"},
    "two words": {"two words"},
    "\u00a0": {"\u00a0"},  # Java's trim() leaves this space
}


@pytest.mark.parametrize(("text", "wanted"), [*WANTED.items()])
def test_a_tag_is_wanted_if_the_text_names_it(text: str, wanted: set[str]) -> None:
    found = filters.tags(text)
    known = {"a", "b", "A", "B", "TAG1", "tag1", *wanted}
    assert {tag for tag in known if found.matches(tag)} == wanted
    assert not found.matches(None)
    assert not found.matches("")


@pytest.mark.parametrize("text", ["*", "", None])
def test_a_star_or_no_text_matches_all_tags(text: str | None) -> None:
    found = filters.tags(text)
    assert found.matches("a")
    assert found.matches("*")
    assert found.matches(None)
    assert found.text == "*"


@pytest.mark.parametrize("text", ["||", "||||", " ", "|| ", " || \t"])
def test_a_text_without_a_tag_is_refused(text: str) -> None:
    """RocketMQ refuses those of `||` alone; with blanks it takes them, and nothing matches."""
    with pytest.raises(BadFilter, match="a tag is expected") as caught:
        filters.tags(text)
    assert caught.value.column == 1


@pytest.mark.parametrize(("text", "column"), [(" *", 2), ("* ", 1), ("a || *", 6), ("*||*", 1)])
def test_a_star_beside_other_tags_is_refused(text: str, column: int) -> None:
    """In RocketMQ this is the tag `*`, which no one means."""
    with pytest.raises(BadFilter, match="stands alone") as caught:
        filters.tags(text)
    assert caught.value.column == column


def test_tags_of_one_hash_are_different() -> None:
    """Aa and BB have the same hash in Java, so RocketMQ's broker takes one for the other."""
    assert filters.tags("Aa").matches("Aa")
    assert not filters.tags("Aa").matches("BB")


def test_filters_that_want_the_same_tags_are_equal() -> None:
    """Order, repetition and blanks do not matter; the text is kept."""
    one, other = filters.tags("b||a||b"), filters.tags(" a || b ")
    assert one == other
    assert hash(one) == hash(other)
    assert (one.text, other.text, one.normal) == ("b||a||b", " a || b ", "a || b")
    assert one != filters.tags("a")
    assert filters.tags("*") == filters.tags("") == filters.tags(None) != one
    assert filters.tags(one.normal) == one


def test_a_filter_of_tags_is_the_same_after_it_was_stored_copied_or_pickled() -> None:
    for made in (filters.tags("b || a"), filters.tags(None)):
        assert filters.stored(made.kind, made.text) == made
        assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made


def test_an_engine_passes_tag_and_headers_to_a_filter() -> None:
    wanted: filters.Filter = filters.tags("paid")
    assert wanted.kind == "tags"
    assert wanted.matches_message("paid", None)
    assert not wanted.matches_message(None, {"TAGS": "paid"})


@pytest.mark.parametrize("make", [filters.tags, filters.sql])
def test_a_long_text_is_refused(make) -> None:
    """A text of the limit is accepted."""
    longest = f"x='{'a' * (TEXT_CHARACTERS_MAX - 4)}'"
    assert len(longest) == TEXT_CHARACTERS_MAX
    make(longest)
    with pytest.raises(BadFilter, match="4,096 characters, this has 4,097") as caught:
        make(longest + " ")
    assert caught.value.column == TEXT_CHARACTERS_MAX + 1


@pytest.mark.parametrize("make", [filters.tags, filters.sql])
def test_a_text_that_cannot_be_stored_is_refused(make) -> None:
    with pytest.raises(BadFilter, match="UTF-8") as caught:
        make("a = '\ud800'")
    assert caught.value.column == 6


@pytest.mark.parametrize("make", [filters.tags, filters.sql])
def test_a_text_that_is_no_str_is_refused(make) -> None:
    with pytest.raises(TypeError, match="made of a str"):
        make(7)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'xpath' is no kind of filter"):
        filters.stored("xpath", "/a")
