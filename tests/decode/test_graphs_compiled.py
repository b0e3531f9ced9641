"""What a compiler is asked to do with a step."""

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from weft.decode import graphs_compiled as module
from weft.decode.graphs_compiled import compiled

TUNED = {"coordinate_descent_tuning": True}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2])
def test_products_of_one_row_are_sums(rows, dtype):
    torch.manual_seed(1)
    x, weight, bias = (torch.randn(*shape).to(dtype) for shape in ((rows, 7), (5, 7), (5,)))
    table = {torch.ops.aten.addmm.default: module._apart}
    made = make_fx(F.linear, decomposition_table=table)(x, weight, bias)
    names = [str(node.target) for node in made.graph.nodes]
    assert ("aten.addmm.default" in names) == (rows > 1)
    wanted = F.linear(x.double(), weight.double(), bias.double())
    near = 1e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(made(x, weight, bias).double(), wanted, rtol=near, atol=near)


@pytest.mark.parametrize(
    ("rows", "options", "usual"), [(1, TUNED, False), (2, TUNED, True), (1, None, True)]
)
def test_only_where_kernels_are_tuned_and_for_one_row(monkeypatch, rows, options, usual):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda step, **how: asked.append(how))
    compiled(print, rows, options)
    (how,) = asked
    assert how["fullgraph"]
    assert how["dynamic"] is False
    assert ("options" in how, "backend" in how) == (usual, not usual)


def test_the_usual_compiler_is_asked(monkeypatch):
    """With its own ways of taking operations apart, and under a name of its own in its store."""
    import torch._inductor.compile_fx as inductor

    asked = []

    def compile_fx(*given, **how):
        asked.append((given, how, torch.compiler.config.cache_key_tag))

    monkeypatch.setattr(inductor, "compile_fx", compile_fx)
    before = torch.compiler.config.cache_key_tag
    module._alone(TUNED, "graph", "inputs")
    ((given, how, tag),) = asked
    assert given == ("graph", "inputs")
    assert how["config_patches"] == TUNED
    assert how["decompositions"][torch.ops.aten.addmm.default] is module._apart
    assert len(how["decompositions"]) > 100
    assert tag != before == torch.compiler.config.cache_key_tag
