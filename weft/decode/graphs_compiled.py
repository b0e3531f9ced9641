"""A step of a search for the compiler: one whole function, with no way back to Python inside."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

Step = Callable[[Any], None]
aten = torch.ops.aten


def compiled(step: Step, rows: int, options: dict[str, Any] | None) -> Step:
    """The same step of so many rows, compiled; shapes never change. `options` are the compiler's.

    With `coordinate_descent_tuning` the products of a single row become sums, which are fused with
    what comes before and after, and kernels are tried in many shapes: longer to make, and faster.
    """
    if rows > 1 or options is None or not options.get("coordinate_descent_tuning"):
        return torch.compile(step, dynamic=False, fullgraph=True, options=options)
    alone = partial(_alone, options)
    return torch.compile(step, dynamic=False, fullgraph=True, backend=alone)


def _alone(options: dict[str, Any], graph: Any, inputs: Any) -> Any:
    """The usual compiler, to whom also products with a bias are sums, as those without one are."""
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.decomposition import select_decomp_table

    table = {**select_decomp_table(), aten.addmm.default: _apart}
    # What was compiled otherwise must not come out of the compiler's store, which does not know.
    tag = f"{torch.compiler.config.cache_key_tag} {_apart.__name__}"
    with torch.compiler.config.patch(cache_key_tag=tag):  # type: ignore[attr-defined]
        return compile_fx(graph, inputs, config_patches=options, decompositions=table)


def _apart(bias: Tensor, x: Tensor, weight: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """A row (1, H) times a matrix (H, F), and a bias (F,), in single precision."""
    if len(x) > 1 or beta != 1 or alpha != 1:
        return NotImplemented
    made = (x.t().float() * weight.float()).sum(0, keepdim=True) + bias.float()  # (1, F)
    # To the compiler this is a question of memory: parts of it will be views, not computed again.
    return made.to(x.dtype).as_strided(made.shape, (made.shape[1], 1))
