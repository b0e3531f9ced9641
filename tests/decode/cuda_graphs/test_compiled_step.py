"""What a compiler is asked to do with a step."""

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from weft.decode.cuda_graphs import compiled_step as module
from weft.decode.cuda_graphs.compiled_step import TUNING_OPTIONS, compile_step

OTHER = {"max_autotune_gemm": True}


class Ids:
    """Rows of ids that say where they are."""

    def __init__(self, rows, gpu):
        self.rows, self.is_cuda = rows, gpu

    def __len__(self):
        return self.rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2])
def test_products_of_one_row_are_sums(rows, dtype):
    torch.manual_seed(1)
    x, weight, bias = (torch.randn(*shape).to(dtype) for shape in ((rows, 7), (5, 7), (5,)))
    table = {torch.ops.aten.addmm.default: module._addmm_as_sum}
    made = make_fx(F.linear, decomposition_table=table)(x, weight, bias)
    names = [str(node.target) for node in made.graph.nodes]
    assert ("aten.addmm.default" in names) == (rows > 1)
    wanted = F.linear(x.double(), weight.double(), bias.double())
    near = 1e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(made(x, weight, bias).double(), wanted, rtol=near, atol=near)


@pytest.mark.parametrize(
    ("ids", "options", "usual"),
    [
        (Ids(1, True), None, False), (Ids(2, True), None, True), (Ids(1, False), None, True),
        (Ids(1, True), OTHER, False), (Ids(2, True), OTHER, True),
    ],
)  # fmt: skip
def test_only_one_row_on_a_gpu_is_made_of_sums(monkeypatch, ids, options, usual):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda step, **how: asked.append(how))
    compile_step(print, ids, options)
    (how,) = asked
    assert how["fullgraph"]
    assert how["dynamic"] is False
    assert ("options" in how, "backend" in how) == (usual, not usual)
    given = how["options"] if usual else how["backend"].args[0]
    assert given == (options if usual else {**TUNING_OPTIONS, **(options or {})})


def test_compiled_step_calls_inductor_under_its_own_cache_key(monkeypatch):
    """With its own ways of taking operations apart, and under a name of its own in its store."""
    import torch._inductor.compile_fx as inductor

    asked = []

    def compile_fx(*given, **how):
        asked.append((given, how, torch.compiler.config.cache_key_tag))

    monkeypatch.setattr(inductor, "compile_fx", compile_fx)
    before = torch.compiler.config.cache_key_tag
    module._compile_single_row(TUNING_OPTIONS, "graph", "inputs")
    ((given, how, tag),) = asked
    assert given == ("graph", "inputs")
    assert how["config_patches"] == TUNING_OPTIONS
    assert how["decompositions"][torch.ops.aten.addmm.default] is module._addmm_as_sum
    assert len(how["decompositions"]) > 100
    assert tag != before == torch.compiler.config.cache_key_tag
