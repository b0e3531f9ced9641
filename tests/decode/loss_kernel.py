"""The Triton kernel of the loss in Triton's interpreter, on any machine: a test runs this alone."""

import torch
import torch.nn.functional as F

from tests.decode.room_kernel import ready  # before Triton is loaded

R, V, C = 7, 211, 256  # rows, words, and columns of the memory they stand in


def main():
    from weft.decode import likelihood_gpu as kernel

    ready()
    kernel.BLOCK = 64  # several blocks, the last of them not full
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        for smoothing in (0.0, 0.1):
            torch.manual_seed(1)
            scores = (torch.randn(R, C) * 3).to(dtype)
            scores[4, :V] = -700.0  # far below, and all alike
            ids = torch.randint(V, (R,))
            ids[2] = -1
            wide = scores[:, :V].double().requires_grad_()
            right = F.cross_entropy(
                wide, ids, reduction="none", label_smoothing=smoothing, ignore_index=-1
            )
            right.sum().backward()
            same = scores.clone()
            losses = kernel.slopes(scores, ids, V, smoothing, True)
            torch.testing.assert_close(losses.double(), right.detach(), rtol=near, atol=near)
            torch.testing.assert_close(scores[:, :V].double(), wide.grad, rtol=0, atol=near)
            assert (scores[:, V:] == 0).all()
            kept = same.clone()
            again = kernel.slopes(same, ids, V, smoothing, False)
            torch.testing.assert_close(again, losses, rtol=0, atol=0)
            assert torch.equal(same, kept)
    print("all equal")


if __name__ == "__main__":
    main()
