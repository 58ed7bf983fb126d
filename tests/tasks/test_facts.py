"""Facts of this Python, checked against Python itself."""

import builtins
import keyword
import unicodedata
import zoneinfo
from http import HTTPStatus

import pytest

from attnlab.tasks import facts as module
from attnlab.tasks.facts import MOST_WORDS, facts, facts_of_split, number, subjects

SUBJECTS = ("http", "exceptions", "keywords", "characters", "zones")


def column(subject: str, name: str) -> list[str]:
    own = facts(subject)
    return [row[own.header.index(name)] for row in own.rows]


def test_subjects() -> None:
    assert subjects() == SUBJECTS


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_name_names_one_row_and_a_cell_is_a_few_words(subject: str) -> None:
    own = facts(subject)
    assert len(own.rows) > 30
    assert {len(row) for row in own.rows} == {len(own.header)}
    for name in own.names:
        assert len(set(column(subject, name))) == len(own.rows)
    assert all(1 <= len(cell.split()) <= MOST_WORDS for row in own.rows for cell in row)
    assert set(own.phrases) == set(own.header) - (set(own.names) if len(own.names) == 1 else set())
    assert all("{}" in phrase for ways in own.phrases.values() for phrase in ways)
    assert all(isinstance(number(c), int) for name in own.sizes for c in column(subject, name))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_splits_share_no_row_and_lose_none(subject: str) -> None:
    parts = [facts_of_split(subject, split) for split in ("train", "validation")]
    assert sorted(parts[0] + parts[1]) == sorted(facts(subject).rows)
    assert set(parts[0]).isdisjoint(parts[1])
    assert 0.1 < len(parts[1]) / len(facts(subject).rows) < 0.4


def test_statuses_are_those_of_http() -> None:
    assert ("404", "not found", "client error") in facts("http").rows
    for code, _, kind in facts("http").rows:
        first = {"informational": 1, "success": 2, "redirection": 3, "client error": 4}.get(kind, 5)
        assert HTTPStatus(int(code)).value // 100 == first


def test_exceptions_are_all_of_builtins() -> None:
    kinds = {each for each in vars(builtins).values() if isinstance(each, type)}
    kinds = {each for each in kinds if issubclass(each, BaseException)}
    assert len(facts("exceptions").rows) == len(kinds)
    assert ("file not found error", "os error", "4", "0") in facts("exceptions").rows
    children = sum(int(count) for count in column("exceptions", "children"))
    pairs = sum(base in kinds for each in kinds for base in each.__bases__)
    assert children == pairs


def test_keywords_are_those_of_the_language() -> None:
    assert set(column("keywords", "word")) == {*keyword.kwlist, *keyword.softkwlist}
    assert ("while", "hard", "5", "no") in facts("keywords").rows
    assert ("None", "hard", "4", "yes") in facts("keywords").rows


def test_characters_are_those_of_unicode() -> None:
    assert ("latin small letter a with acute", "Ll", "L", "00e1") in facts("characters").rows
    for name, category, direction, code in facts("characters").rows:
        character = chr(int(code, 16))
        assert name == unicodedata.name(character).lower().replace("-", " ")
        assert category == unicodedata.category(character)
        assert direction == unicodedata.bidirectional(character)


def test_zones_have_their_offsets() -> None:
    assert ("kolkata", "asia", "+5:30", "+5:30") in facts("zones").rows
    assert ("paris", "europe", "+1", "+2") in facts("zones").rows
    assert ("st johns", "america", "-3:30", "-2:30") in facts("zones").rows


def test_a_machine_without_time_zones_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    with pytest.raises(ValueError, match=r"no time zone data: leave 'zones' out .* tzdata"):
        module._zones()


def test_numbers_are_compared_as_numbers() -> None:
    assert number("9") < number("10") < number("100")
    assert number("00ff") < number("0100")
