"""Reports as people read them."""

from __future__ import annotations

from cachefriendly.events import CacheReport, Loss, MissReason


def test_a_report_is_a_line_of_numbers() -> None:
    report = CacheReport(293, 275, 18, 40, 57, ttft_s=0.854, total_s=1.5)
    assert str(report) == (
        "293 prompt tokens: 275 reused, 18 prefilled; 40 generated; "
        "first token after 0.85 s, done after 1.50 s"
    )


def test_what_happened_seldom_is_said_only_then() -> None:
    report = CacheReport(9, 9, 0, 1, 1, background_prefilled_tokens=4, dropped_messages=2)
    assert "4 of the reused prefilled in the background; 2 messages left out" in str(report)


def test_every_loss_that_cost_tokens_is_a_line_with_its_remedy() -> None:
    time = Loss(
        MissReason.VOLATILE_FIELD, 45, 27, 0, "system", "at 08:00", "at 08:07", "bind it late"
    )
    evicted = Loss(MissReason.EVICTED, 3, 72)
    first = Loss(MissReason.FIRST_CALL, 0, 0)
    report = CacheReport(86, 27, 59, 21, 79, losses=(time, evicted, first))
    assert str(report).splitlines()[1:] == [
        "  45 tokens lost: volatile field (message 0 system); "
        "'at 08:00' became 'at 08:07'; bind it late",
        "  3 tokens lost: evicted",
    ]
