"""The chunked selection of the portable neighbour search, at sizes where it runs."""

import pytest
import torch

from glocal.kernels import portable


@pytest.mark.parametrize(("rows", "n", "count"), [(5, 64 * 50, 3), (3, 64 * 80, 17), (4, 128, 9)])
def test_smallest_equals_topk(rows, n, count):
    values = torch.randn(rows, n, generator=torch.Generator().manual_seed(n))
    kept, place = portable.smallest(values, count)
    assert torch.equal(kept, values.sort(1).values[:, :count])
    assert torch.equal(values.gather(1, place), kept)


@pytest.mark.parametrize("kind", ["noise", "few values"])
def test_large_knn_equals_the_definition(kind):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2500, 2, generator=generator)
    x = x if kind == "noise" else x.round()  # many ties and duplicates
    neighbors, squared = portable.knn(x, 5)
    d2 = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
    d2[torch.arange(2500), torch.arange(2500)] = -1
    expected, order = d2.sort(dim=1, stable=True)
    torch.testing.assert_close(squared, expected[:, :5].clamp(min=0), rtol=1e-12, atol=1e-12)
    if kind == "noise":
        assert torch.equal(neighbors.long(), order[:, :5])
    else:
        assert torch.equal(neighbors[:, 0].long(), torch.arange(2500))
