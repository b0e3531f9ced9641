"""The Triton kernels of few rows in Triton's interpreter, on any machine: a test runs this alone.

The interpreter has to be asked for before Triton is loaded, and stays for the whole process.
"""

from itertools import product as every

import torch

from tests.decode.room_kernel import ready
from weft.decode import few

EPS = 1e-5


def products():
    """With and without each part, narrow and wide, of one row and of several."""
    from weft.decode.few_gpu import product

    # The interpreter's matrix units do not know bfloat16.
    for dtype, rows, near in (
        (torch.float32, 3, 2e-6), (torch.bfloat16, 1, 3e-2), (torch.float16, 5, 4e-3),
    ):  # fmt: skip
        for (K, N), shape in every(((48, 20), (16, 40), (1030, 20)), (None, (16, 4))):
            torch.manual_seed(K)
            wide = torch.randn(rows, 3 * K).to(dtype)
            x = wide[:, K : 2 * K]  # rows of a longer one
            weight = (torch.randn(N, K) / K**0.5).to(dtype)
            bias, gain, shift, more, less, added = (
                torch.randn(size).to(dtype) for size in (N, K, K, N, N, (rows, N))
            )
            norms = ((None, None, 0.0), (gain, shift, EPS))
            others = ((None, None, None, 0.0), (added, None, None, 0.0), (added, more, less, EPS))
            for with_bias, norm, kind, other in every(
                (None, bias), norms, ("", "relu", "gelu", "gelu-tanh"), others
            ):
                asked = (x, weight, with_bias, *norm, kind, *other)
                found = product(*asked, shape)
                double = [part.double() if torch.is_tensor(part) else part for part in asked]
                torch.testing.assert_close(
                    found.double(), few._product(*double), rtol=near, atol=near
                )


def largest():
    """Every place once, ties in order, impossible ones last, NaN first; pieces not full."""
    from weft.decode.largest_gpu import largest

    torch.manual_seed(1)
    for size, count in ((1000, 1), (1000, 7), (512, 3), (2100, 10)):
        values = torch.randn(3, size)
        values[0, 5:] = -torch.inf
        values[1] = values[1].round()  # many are equal, some of them -0
        values[2, 700 % size] = torch.nan
        key = values.masked_fill(values.isnan(), torch.inf)
        order = torch.sort(key, dim=1, descending=True, stable=True).indices[:, :count]
        for given in (values, torch.cat([values, values], 1)[:, :size]):
            found, places = largest(given, count)
            assert torch.equal(places, order), (size, count)
            assert torch.equal(found.nan_to_num(nan=7e9), values.gather(1, order).nan_to_num(7e9))


def main():
    ready()
    products()
    largest()
    print("all equal")


if __name__ == "__main__":
    main()
