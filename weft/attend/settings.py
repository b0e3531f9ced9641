"""The [attention] section: one score for every attention of a model, one mask for self-attention.

T query steps   S key steps
"""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from weft import registry
from weft.attend.head_scores import HEAD_SCORES
from weft.errors import UserError
from weft.protocols import Section

Mask = Literal["full", "causal", "no-diagonal", "local"]
DEFAULT_WINDOW = 2


@dataclass(frozen=True)
class Attention:
    """The `score` of a query and a step, and the `mask` of self-attention.

    With the mask "local" a step attends to `window` steps on either side and to itself, as a
    convolution of kernel 2·window + 1 does; with "no-diagonal", to all but itself. As the section
    of a configuration, None is the default of each part; as the default of a part, a mask of None
    says that it has no self-attention.
    """

    score: str | None = None
    mask: Mask | None = None
    window: int | None = None

    def over(self, default: "Attention") -> "Attention":
        """Return the settings of a part: these, and its default where these say nothing."""
        score = self.score or default.score
        if default.mask is None:
            return Attention(score)
        window = default.window if self.window is None else self.window
        return Attention(score, self.mask or default.mask, window)


SELF_ATTENTION = Attention("scaled", "full")  # Vaswani et al. 2017, of an encoder
CAUSAL_ATTENTION = Attention("scaled", "causal")  # and of a decoder
ADDITIVE_ATTENTION = Attention("additive")  # Bahdanau et al. 2015
DOT_ATTENTION = Attention("dot")  # Luong et al. 2015
TRILINEAR_ATTENTION = Attention("trilinear")  # Seo et al. 2017


class AttentionUse(NamedTuple):
    """A part that attends, and its own defaults."""

    part: str  # as in "pool 'attention'"
    default: Attention


@dataclass(frozen=True)
class MaskPattern:
    """The pattern of a self-attention mask: True where a query may attend to a key."""

    mask: Mask
    window: int | None = None

    @property
    def has_kernel(self) -> bool:
        """True if kernels have it: no mask, or only that of the future."""
        return self.mask in ("full", "causal")

    def mask_offsets(self, offsets: Tensor, causal: bool) -> Tensor:
        """Return the mask of `offsets`, the steps from each key to the query."""
        allowed = torch.ones_like(offsets, dtype=torch.bool)
        if causal or self.mask == "causal":
            allowed = offsets >= 0
        if self.mask == "no-diagonal":
            allowed = allowed & (offsets != 0)
        if self.mask == "local":
            window = DEFAULT_WINDOW if self.window is None else self.window
            allowed = allowed & (offsets.abs() <= window)
        return allowed

    def mask_steps(
        self, queries: int, keys: int, causal: bool, device: torch.device | None = None
    ) -> Tensor | None:
        """Return the mask (T, S) where the last query is the last key; None if all is allowed."""
        if self.mask == "full" and not causal:
            return None
        steps = torch.arange(keys - queries, keys, device=device)[:, None]  # (T, 1)
        return self.mask_offsets(steps - torch.arange(keys, device=device), causal)


def find_uses(parts: Iterable[tuple[str, Section]]) -> list[AttentionUse]:
    """Return which of the parts (kind, filled section) attend: their constructors say so."""
    uses = []
    for kind, spec in parts:
        cls = registry.find(kind, spec["kind"])
        parameter = inspect.signature(cls).parameters.get("attention_config")
        if parameter is None or (kind == "decoder" and not cls.uses_attention(spec)):
            continue
        assert isinstance(parameter.default, Attention)
        uses.append(AttentionUse(f"{kind} '{spec['kind']}'", parameter.default))
    return uses


def build_part(kind: str, spec: Section, section: Section, **derived: object) -> Any:
    """Build a part; `attention_config`, if it takes one, is the section over its default."""
    parameter = inspect.signature(registry.find(kind, spec["kind"])).parameters.get(
        "attention_config"
    )
    if parameter is not None:
        derived["attention_config"] = Attention(**section).over(parameter.default)
    return registry.build(kind, spec, **derived)


def fill_section(section: Section, uses: list[AttentionUse], pretrained: str) -> dict[str, object]:
    """Return the [attention] section with the settings that all uses share written in.

    `pretrained` is the name of a pre-trained network, whose attention cannot be changed.
    """
    given = Attention(**registry.check(Attention, section, "[attention]"))
    _check_uses(given, uses, pretrained)
    masks = [use for use in uses if use.default.mask is not None]
    _check_mask(given, masks)
    if given.score is not None:
        registry.find("score", given.score)
        if masks and given.score not in HEAD_SCORES:
            raise UserError(
                f"attention.score: multi-head attention ({masks[0].part}) has no score "
                f"'{given.score}'. Known: {', '.join(HEAD_SCORES)}."
            )
    out: dict[str, object] = {}
    scores = {given.over(use.default).score for use in uses}
    if len(scores) == 1:
        out["score"] = scores.pop()
    kinds = {given.over(use.default).mask for use in masks}
    if len(kinds) == 1:
        out["mask"] = kinds.pop()
    if out.get("mask") == "local":
        out["window"] = DEFAULT_WINDOW if given.window is None else given.window
    return out


def _check_uses(given: Attention, uses: list[AttentionUse], pretrained: str) -> None:
    """Raise a UserError if a setting has nothing to act on."""
    for key, value in (("score", given.score), ("mask", given.mask), ("window", given.window)):
        of_mask = key != "score"
        acting = [use for use in uses if use.default.mask is not None or not of_mask]
        if value is None or acting or (pretrained and value == "scaled"):
            continue
        setting = f"attention.{key} = {value!r}"
        if pretrained:
            raise UserError(
                f"{setting}: {pretrained} is pre-trained, with scaled attention, which cannot be "
                f"changed, and the model has no other. Remove attention.{key}."
            )
        what = "self-attention" if of_mask else "attention"
        fix = 'encoder.kind = "transformer"' if of_mask else 'pool.kind = "attention"'
        raise UserError(
            f"{setting}, but this model has no {what}. Remove attention.{key}, or use {what}, as "
            f"with {fix}."
        )


def _check_mask(given: Attention, masks: list[AttentionUse]) -> None:
    """Raise a UserError for a mask that a part cannot have, or a window without its mask."""
    if given.window is not None and given.mask != "local":
        raise UserError(
            f"attention.window = {given.window} is the width of the mask 'local'. Set "
            'attention.mask = "local", or remove attention.window.'
        )
    if given.window is not None and given.window < 0:
        raise UserError(f"attention.window should be 0 or more, got {given.window}.")
    causal = [use.part for use in masks if use.default.mask == "causal"]
    if given.mask == "full" and causal:
        raise UserError(
            f"attention.mask = 'full': {causal[0]} writes a text from left to right and may not "
            "attend to what follows. Remove attention.mask (an encoder is 'full' without it), or "
            "choose causal, no-diagonal or local."
        )
