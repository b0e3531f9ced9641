"""The Triton kernel of one step in Triton's interpreter, on any machine: a test runs this alone.

The interpreter has to be asked for before Triton is loaded, and stays for the whole process.
"""

import os
from contextlib import nullcontext
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton.runtime.interpreter as interpreter

N, P = 5, 37
ONES = [0, 31, 7, 16, 17, 1]  # where rows stand that are alone
BEAMS = [0, 0, 0, 31, 31, 31]  # and those of two prompts of three beams

_patch = interpreter._patch_lang_tensor


def _patched(tensor, scope):
    """NumPy makes no number of an array of one element any more."""
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def ready():
    """Let kernels run on tensors of a processor."""
    interpreter._patch_lang_tensor = _patched
    torch.get_device_module = lambda device: SimpleNamespace(device=lambda device: nullcontext())


def by_hand(q, k, v, keys, values, position, rows, beams):
    """One query after the other, in double precision: (B, 1, N*K)."""
    out = torch.empty(q.shape[:2] + q.shape[3:], dtype=torch.float64)  # (B, N, K)
    for b in range(len(q)):
        first = b // beams * beams
        for n in range(q.shape[1]):
            at = range(int(position[b]))
            from_ = [b if rows is None else first + int(rows[b, p]) for p in at]
            near = torch.stack([*(keys[r, n, p] for p, r in enumerate(from_)), k[b, n, 0]])
            far = torch.stack([*(values[r, n, p] for p, r in enumerate(from_)), v[b, n, 0]])
            shares = (near.double() @ q[b, n, 0].double() / q.shape[3] ** 0.5).softmax(0)
            out[b, n] = shares @ far.double()
    return out.flatten(1)[:, None]


def given(K, beams, dtype):
    """Strided queries, keys and values, rooms with garbage behind what is filled, and the rest."""
    torch.manual_seed(K + beams)
    made = torch.randn(6, 1, 3 * N * K).to(dtype)
    q, k, v = (part.view(6, 1, N, K).transpose(1, 2) for part in made.chunk(3, -1))
    keys, values = torch.randn(2, 6, N, P, K).to(dtype)
    position = torch.tensor(ONES if beams == 1 else BEAMS)
    for room in (keys, values):
        for row, at in zip(room, position, strict=True):
            row[:, at:] = torch.nan
    rows = torch.randint(beams, (6, P), dtype=torch.int32) if beams > 1 else None
    return q, k, v, keys, values, position, rows, beams


def looked(dtype, near):
    """A memory of fewer rows than ask, one of them empty, another full."""
    from weft.decode.room_gpu import look

    for K in (64, 24):
        q, _, _, _, _, _, _, _ = given(K, 1, dtype)
        keys, values = torch.randn(2, 3, N, P, K).to(dtype)
        lengths = torch.tensor([17, 0, P])
        expected = torch.zeros(6, N, K, dtype=torch.float64)
        for row, n in ((row, n) for row in range(6) for n in range(N)):
            own = slice(int(lengths[row // 2]))
            shares = keys[row // 2, n, own].double() @ q[row, n, 0].double() / K**0.5
            expected[row, n] = shares.softmax(0) @ values[row // 2, n, own].double()
        for room, length in ((room, length) for room in (keys, values) for length in (17, 0)):
            room[0 if length else 1, :, length:] = torch.nan
        for shape in (None, (16, 4)):
            found = look(q, keys, values, lengths, shape)
            wanted = expected.flatten(1)[:, None]
            torch.testing.assert_close(found.double(), wanted, rtol=0, atol=near)


def main():
    from weft.decode.room_gpu import attend

    ready()
    for dtype, near in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2)):
        looked(dtype, near)
        for K in (64, 24):
            for beams in (1, 3):
                for shape in (None, (16, 4)):  # the whole past at once, and in three blocks
                    asked = given(K, beams, dtype)
                    expected = by_hand(*asked)
                    wanted = [room.clone() for room in asked[3:5]]
                    for room, fresh in zip(wanted, asked[1:3], strict=True):
                        room[torch.arange(6), :, asked[5]] = fresh[:, :, 0]
                    found = attend(*asked, shape=shape)
                    torch.testing.assert_close(found.double(), expected, rtol=0, atol=near)
                    for room, right in zip(asked[3:5], wanted, strict=True):
                        torch.testing.assert_close(room, right, rtol=0, atol=0, equal_nan=True)
    print("all equal")


if __name__ == "__main__":
    main()
