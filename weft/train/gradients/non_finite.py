"""NaN triage: the first part of a model whose output or gradient is not finite."""

import contextlib
import math

import torch
from torch import nn

from weft.batch import LabelledBatch
from weft.model import Model
from weft.runtime import Runtime
from weft.tasks.task import AnyTask
from weft.train.gradients.measure import ForwardHook, layer_name, output_tensor, parameter_norm


def find_non_finite(
    model: Model, task: AnyTask, batch: LabelledBatch, runtime: Runtime
) -> str | None:
    """Return the first module whose output, else whose gradient, is not finite."""
    bad: list[str] = []

    def check(name: str) -> ForwardHook:
        def hook(module: nn.Module, inputs: object, out: object) -> None:
            tensor = output_tensor(out)
            if tensor is not None and not bad and not torch.isfinite(tensor).all():
                bad.append(name)

        return hook

    batch = batch.to(runtime.device)
    names = {name: layer_name(model, name) for name, _ in model.named_modules() if name}
    with contextlib.ExitStack() as hooks:
        for name, module in model.named_modules():
            if name and not isinstance(module, nn.ModuleList):
                handle = module.register_forward_hook(check(name))
                hooks.callback(handle.remove)
        with runtime.autocast():
            loss = task.loss(model(batch.source), batch).total
    if bad:
        return f"the output of {names[bad[0]]} ({bad[0]})"
    if not torch.isfinite(loss):
        return "the loss itself, though all logits are finite"
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    # Gradients are computed from the last layer to the first.
    for name, gradient in reversed(list(zip(named, grads, strict=True))):
        if not math.isfinite(float(parameter_norm(gradient))):
            return f"the gradient of {layer_name(model, name)} ({name})"
    return None
