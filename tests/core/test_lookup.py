"""Looking up: both ways give the same rows, and what has no row is refused."""

import pytest
import torch

from attnlab.core.lookup import checked_ids, one_hot, rows_of


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_one_hot_rows_fetch_what_the_lookup_fetches(dtype: torch.dtype) -> None:
    table = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([[0, 10, 3], [3, 3, 7]], dtype=dtype)
    fetched, multiplied = rows_of(table, ids, "tokens"), one_hot(ids, table, "tokens") @ table
    assert torch.equal(fetched, table[ids.long()])
    torch.testing.assert_close(multiplied, fetched)
    grads = [torch.autograd.grad(x.square().sum(), table)[0] for x in (fetched, multiplied)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("wrong", [11, 3000, -1])
def test_an_id_without_a_row_is_refused(wrong: int) -> None:
    ids = torch.tensor([[3, wrong]])
    with pytest.raises(ValueError, match=rf"^tokens should lie in 0 … 10, .*; {wrong} does not"):
        checked_ids(ids, 11, "tokens")
    with pytest.raises(ValueError, match=f"{wrong} does not; take fewer$"):
        checked_ids(ids, 11, "tokens", "take fewer")


def test_nothing_is_checked_where_there_are_no_numbers() -> None:
    assert checked_ids(torch.zeros(0, 3, dtype=torch.int32), 11, "tokens").shape == (0, 3)
    assert checked_ids(torch.zeros(2, 3, dtype=torch.int32, device="meta"), 1, "t").is_meta
