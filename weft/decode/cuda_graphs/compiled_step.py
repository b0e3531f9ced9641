"""A step of a search for the compiler: one whole function, with no way back to Python inside."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from weft.kernels.compile import raise_recompile_limit

Step = Callable[[Any], None]
aten = torch.ops.aten


# Kernels are tried in many shapes. On an H200 a step of one row of GPT-2 then takes 0.42 ms in
# place of 0.49, and is made in 38 s in place of 15.
TUNING_OPTIONS = {"coordinate_descent_tuning": True}


def compile_step(step: Step, ids: Tensor, options: dict[str, Any] | None) -> Step:
    """The same step of some rows of ids, compiled; shapes never change.

    On a GPU the products of a single row become sums, which are fused with what comes before and
    after. `options` are more of the compiler's.
    """
    raise_recompile_limit()
    how: dict[str, Any] = {"dynamic": False, "fullgraph": True}
    if len(ids) == 1 and ids.is_cuda:
        return torch.compile(
            step, backend=partial(_compile_single_row, {**TUNING_OPTIONS, **(options or {})}), **how
        )
    return torch.compile(step, options=options, **how)


def _compile_single_row(options: dict[str, Any], graph: Any, inputs: Any) -> Any:
    """The usual compiler, to whom also products with a bias are sums, as those without one are."""
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.decomposition import select_decomp_table

    table = {**select_decomp_table(), aten.addmm.default: _addmm_as_sum}
    # What was compiled otherwise must not come out of the compiler's store, which does not know.
    tag = f"{torch.compiler.config.cache_key_tag} {_addmm_as_sum.__name__}"
    with torch.compiler.config.patch(cache_key_tag=tag):  # type: ignore[attr-defined]
        return compile_fx(graph, inputs, config_patches=options, decompositions=table)


def _addmm_as_sum(
    bias: Tensor, x: Tensor, weight: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """A row (1, H) times a matrix (H, F), and a bias (F,), in single precision."""
    if len(x) > 1 or beta != 1 or alpha != 1:
        return NotImplemented
    made = (x.t().float() * weight.float()).sum(0, keepdim=True) + bias.float()  # (1, F)
    # To the compiler this is a question of memory: parts of it will be views, not computed again.
    return made.to(x.dtype).as_strided(made.shape, (made.shape[1], 1))
