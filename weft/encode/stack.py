"""A stack of different encoders, such as a CNN under an LSTM.

B rows   T steps   H hidden width
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from weft.batch import Padded
from weft.errors import UserError
from weft.protocols import Encoder


@dataclass(frozen=True)
class MemberInput:
    """An encoder of a stack, and what it reads."""

    member: Encoder
    inputs: Padded
    stride: int  # steps of the text in one of its input steps


class EncoderStack(nn.Module, Encoder):
    """Encoders one upon the other: each reads the states of the one below.

    A configuration describes it by several tables [[encoder]], the lowest first. Its directions are
    those of the last encoder. Only the last may have steps in front of the text's, such as [CLS].
    """

    def __init__(self, members: Sequence[Encoder], kinds: Sequence[str]):
        super().__init__()
        modules = [member for member in members if isinstance(member, nn.Module)]
        assert len(modules) == len(members)
        self.stack = nn.ModuleList(modules)
        self.kinds = tuple(kinds)
        last = members[-1]
        self.output_size, self.directions = last.output_size, last.directions
        self.leading = last.leading
        limits = []
        for kind, member in zip(kinds, members, strict=True):
            if member.input_kind is not None:
                raise UserError(
                    f"encoder '{kind}' reads {member.input_kind}, so it cannot be one of several. "
                    "Use it alone, in one [encoder]."
                )
            if member.leading and (member is not last or self.stride > 1):
                raise UserError(
                    f"encoder '{kind}': 'cls' puts a step in front of the text. In a stack, only "
                    "the last encoder may have it, over encoders without a stride."
                )
            if member.max_positions is not None:
                limits.append(member.max_positions * self.stride)
            self.stride *= member.stride
        self.max_positions = min(limits, default=None)

    @property
    def members(self) -> list[Encoder]:
        """The encoders, the lowest first."""
        return [member for member in self.stack if isinstance(member, Encoder)]

    def forward(self, x: Padded) -> Padded:
        for member in self.members:
            x = member(x)
        states = x.data  # (B, T, H)
        return x.with_data(states)

    def member_inputs(self, x: Padded) -> Iterator[MemberInput]:
        """Yield each encoder with what it reads, the lowest first."""
        stride = 1
        for member in self.members:
            yield MemberInput(member, x, stride)
            x, stride = member(x), stride * member.stride

    @property
    def has_attention(self) -> bool:  # type: ignore[override]
        """True if the topmost encoders have attention weights over the steps of the text."""
        return self.stride == 1 and any(member.has_attention for member in self._attending())

    def attention_weights(self, x: Padded) -> list[Tensor]:
        """Return the attention weights (B, N, T, T) of each layer of the topmost encoders.

        Those are Transformers, and encoders that treat each step on its own. The states below
        them stand for the tokens at their steps.
        """
        attending = self._attending()
        return [
            layer
            for at in self.member_inputs(x)
            if at.member.has_attention and at.member in attending
            for layer in at.member.attention_weights(at.inputs)
        ]

    def _attending(self) -> list[Encoder]:
        """The topmost encoders, down to the first that mixes steps without attention."""
        out: list[Encoder] = []
        for member in reversed(self.members):
            if member.mixes_steps and not member.has_attention:
                break
            out.append(member)
            if member.leading:  # below, there are fewer steps
                break
        return out


def encoder_members(encoder: Encoder) -> list[Encoder]:
    """Return the encoders of a stack, or the encoder itself."""
    return encoder.members if isinstance(encoder, EncoderStack) else [encoder]


def member_inputs(encoder: Encoder, x: Padded) -> Iterator[MemberInput]:
    """Yield each encoder of a stack with what it reads, or the encoder itself."""
    if isinstance(encoder, EncoderStack):
        yield from encoder.member_inputs(x)
    else:
        yield MemberInput(encoder, x, 1)
