"""Work shared by several processes: each piece once, whoever counts."""

from hypothesis import given
from hypothesis import strategies as st

from attnlab.measure.parts import Part, Turns


def test_the_parts_of_a_list_are_the_list() -> None:
    names = list("abcdefg")
    parts = [Part(number, 3).of(names) for number in (1, 2, 3)]
    assert parts == [["a", "d", "g"], ["b", "e"], ["c", "f"]]


@given(parts=st.integers(1, 9), pieces=st.integers(0, 40))
def test_every_piece_has_its_turn_in_one_process_and_the_loads_are_even(
    parts: int, pieces: int
) -> None:
    turns = [Turns(Part(number, parts)) for number in range(1, parts + 1)]
    taken = [[each.mine() for each in turns] for _ in range(pieces)]
    assert [sum(one) for one in taken] == [1] * pieces
    loads = [sum(column) for column in zip(*taken, strict=True)]
    assert not taken or max(loads) - min(loads) <= 1
