from __future__ import annotations

import pytest

from dagnn.search.phases import Phases


def test_phases_are_timed_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    phases = Phases(shown=True)
    with phases.phase("first") as advance:
        advance(1, 2)
    phases.line("half [way]")
    assert phases.seconds["first"] >= 0
    assert "half [way]" in capsys.readouterr().err


def test_nothing_is_printed_where_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    phases = Phases(shown=False)
    with phases.phase("first") as advance:
        advance(1, 2)
    phases.line("words")
    assert capsys.readouterr() == ("", "")
    assert list(phases.seconds) == ["first"]
