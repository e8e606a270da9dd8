"""What another face than an engine of this process does otherwise, or cannot be tested on, and why.

All tests that are not named here must pass on all faces.
"""

from __future__ import annotations

from typing import NamedTuple

ALL = frozenset(("frames", "aio", "aio-frames"))
REMOTE = frozenset(("frames", "aio-frames"))
LOOPS = frozenset(("aio", "aio-frames"))
FRAMES, AIO, AIO_FRAMES = frozenset(("frames",)), frozenset(("aio",)), frozenset(("aio-frames",))


class Difference(NamedTuple):
    """Tests that differ on some faces for one reason, by their file; "*" stands for all of it."""

    faces: frozenset[str]
    reason: str
    tests: dict[str, tuple[str, ...]]


ONE_THREAD = "a connection in memory, and a loop in memory, serve one thread"
MEANT = [
    Difference(
        REMOTE,
        "the engine process cannot call a function of its client",
        {
            "test_consume_members": (
                "test_a_function_of_the_program_may_be_the_strategy",
                "test_a_strategy_that_gives_a_queue_twice_is_refused",
            ),
        },
    ),
    Difference(
        REMOTE,
        "the engine process makes a topic as its options say",
        {
            "test_consume_topics": (
                "test_a_commit_makes_a_topic_again_that_was_deleted_before",
                "test_a_transaction_makes_a_deleted_topic_again_with_all_queues_that_it_has_chosen",
            ),
        },
    ),
    Difference(
        REMOTE,
        "the process of an engine that has failed ends, and the next one asks again",
        {
            "test_feedback_answering": (
                "test_a_failed_engine_gives_no_question_and_takes_no_answer",
            ),
        },
    ),
    Difference(
        REMOTE,
        "the refusal of several ranges names the first message of the one that is lost",
        {
            "test_consume_handling": ("test_a_batch_with_gaps_is_acked_whole_or_not_at_all",),
        },
    ),
]
"""What is meant to be otherwise. The tests run on these faces, too, and have to fail there."""

CANNOT_RUN = [
    Difference(
        AIO_FRAMES,
        "what the garbage collector ends is told to the engine process by a thread, soon",
        {
            "test_tx_transaction": ("test_a_garbage_collected_open_transaction_frees_its_id",),
            "test_consume_transactional_acks": (
                "test_a_dropped_transaction_returns_its_holds_to_the_consumer_at_once",
            ),
        },
    ),
    Difference(
        LOOPS,
        "run() of a loop acks each message by itself, and has handlers that are awaited",
        {
            "test_consume_advancing": ("*",),
        },
    ),
    Difference(
        LOOPS,
        ONE_THREAD,
        {"test_consume_members": ("test_members_are_shown_as_they_are_at_one_instant",)},
    ),
    Difference(
        LOOPS,
        "the transaction that is found is the awaited one inside of its blocking front",
        {"test_tx_current_transaction": ("*",)},
    ),
    Difference(
        LOOPS,
        "it makes so many calls that it takes minutes on a loop in memory",
        {
            "test_consume_priorities": ("test_retention_drops_spans",),
            "test_consume_ordered": ("test_each_key_is_acked_in_its_order",),
        },
    ),
    Difference(
        REMOTE,
        "over frames the chores are nobody's: what retention does is not seen here",
        {
            "test_consume_groups": (
                "test_unacked_messages_dropped_by_retention_are_counted_and_logged",
            ),
            "test_consume_topics": (
                "test_a_topic_keeps_messages_for_its_own_time",
                "test_a_group_at_the_start_is_the_same_after_a_restart_and_a_trim",
            ),
        },
    ),
    Difference(
        ALL,
        ONE_THREAD,
        {
            "test_consume_advancing": (
                "test_a_group_that_keeps_order_gets_the_next_of_a_key_after_the_ack",
            ),
            "test_consume_consumer": (
                "test_a_poll_that_fails_after_its_lease_takes_nothing_from_the_next_owner",
            ),
            "test_consume_ordered": (
                "test_a_release_while_another_thread_looks_strands_no_message",
                "test_an_ack_while_another_thread_looks_strands_no_message",
                "test_a_message_acked_while_another_thread_looks_blocks_no_later_one",
                "test_a_skip_before_an_attempt_is_counted_strands_no_message",
            ),
            "test_feedback_asking": ("test_a_transaction_is_asked_about_while_it_is_relocated",),
            "test_feedback_check_loop": (
                "test_a_loop_ends_when_it_is_stopped",
                "test_a_loop_ends_with_the_engine",
                "test_a_loop_that_cannot_ask_pauses_before_it_tries_again",
            ),
            "test_feedback_settle": (
                "test_settle_waits_for_the_answer_of_another_caller",
                "test_an_unknown_of_another_caller_ends_the_wait",
                "test_settle_waits_for_a_decision_by_hand_and_reports_it",
                "test_the_end_of_the_engine_ends_settle",
                "test_settle_notices_an_end_just_before_it_waits",
            ),
            "test_tx_outcomes": ("test_closing_the_engine_during_outcome_raises_closed",),
        },
    ),
    Difference(
        LOOPS,
        "a power cut ends the loop, which would have to be another one afterwards",
        {
            "test_consume_transactional_acks": (
                "test_each_message_is_transformed_exactly_once_over_any_crash",
            ),
            "test_tx_find": ("test_a_power_cut_while_marks_are_written_changes_no_search_result",),
        },
    ),
    Difference(
        REMOTE,
        "it changes what an engine of this process has read ahead",
        {
            "test_consume_damage": ("test_a_poll_ends_before_messages_that_cannot_be_made",),
        },
    ),
    Difference(
        LOOPS,
        "it calls inner parts with a transaction whose queues a loop chooses later",
        {
            "test_tx_message_ids": ("test_a_planned_prepare_holds_its_ids",),
        },
    ),
]
"""What the machines of these tests cannot do, or what is otherwise only now and then."""


def difference(among: list[Difference], face: str, module: str, test: str) -> str | None:
    """Return why `among` names a test for a face; None if it does not."""
    for each in among:
        if face in each.faces and {test, "*"} & {*each.tests.get(module, ())}:
            return each.reason
    return None
