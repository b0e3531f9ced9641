"""torch.compile of a search step as one graph, without breaks back to Python."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from weft.decode.search.search import Run
from weft.kernels.compile import raise_recompile_limit

CompilerOptions = dict[str, str | int | bool | Callable[..., object]]
aten = torch.ops.aten


# Tunes kernel configurations. On an H200 a single-row step of GPT-2 then takes 0.42 ms instead of
# 0.49, and compiles in 38 s instead of 15.
TUNING_OPTIONS: CompilerOptions = {"coordinate_descent_tuning": True}


def compile_step(
    step: Callable[[Run], None], ids: Tensor, options: CompilerOptions | None
) -> Callable[[Run], None]:
    """Compile a step over rows of ids; shapes never change.

    On a GPU the products of a single row become sums, which the compiler fuses with their
    surroundings. `options` are passed on to the compiler.
    """
    raise_recompile_limit()
    if len(ids) == 1 and ids.is_cuda:
        backend = partial(_compile_single_row, {**TUNING_OPTIONS, **(options or {})})
        return torch.compile(step, backend=backend, dynamic=False, fullgraph=True)
    return torch.compile(step, options=options, dynamic=False, fullgraph=True)


def _compile_single_row(
    options: CompilerOptions, graph: torch.fx.GraphModule, inputs: list[Tensor]
) -> object:
    """Run Inductor with products with a bias decomposed into sums, like those without one."""
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.decomposition import select_decomp_table

    table = {**select_decomp_table(), aten.addmm.default: _addmm_as_sum}
    # The compiler's cache does not know of the decomposition: tag its keys.
    tag = f"{torch.compiler.config.cache_key_tag} {_addmm_as_sum.__name__}"
    with torch.compiler.config.patch(cache_key_tag=tag):  # type: ignore[attr-defined]
        compiled: object = compile_fx(graph, inputs, config_patches=options, decompositions=table)
    return compiled


def _addmm_as_sum(
    bias: Tensor, x: Tensor, weight: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Multiply a row (1, H) by a matrix (H, F) and add a bias (F,), in float32."""
    if len(x) > 1 or beta != 1 or alpha != 1:
        return NotImplemented  # type: ignore[no-any-return]  # the convention of decompositions
    total = (x.t().float() * weight.float()).sum(0, keepdim=True) + bias.float()  # (1, F)
    # Forces the compiler to materialise it: slices become views instead of recomputations.
    return total.to(x.dtype).as_strided(total.shape, (total.shape[1], 1))
