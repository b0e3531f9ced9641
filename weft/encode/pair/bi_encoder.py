"""Two texts: read as one row, or each by itself and compared when both are one vector.

B rows   T steps of both texts   E embedding width   H width of a text's vector
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.batch import Padded
from weft.errors import UserError
from weft.protocols import Pair, PairJoin, WeightMatrices
from weft.registry import register


@register("pair", "joint")
class JointEncoder(nn.Module, Pair):
    """Both texts in one row of one network; `mark` marks the steps of the second text.

    A pre-trained network has its own marks. Without one, `mark` is a learned vector that is added
    to every step of the second text.
    """

    encodes_separately = False

    def __init__(self, input_size: int, mark: bool = False):
        super().__init__()
        self.output_size = input_size
        self.mark = nn.Parameter(torch.randn(input_size) / input_size**0.5) if mark else None

    def forward(self, x: Padded) -> Padded:
        """(B, T, E) embedded rows of two texts -> the same with marks."""
        if self.mark is None:
            return x
        marked = x.data + x.segments[..., None] * self.mark  # (B, T, E)
        return x.with_data(marked)


class PairFeatures(nn.Module, PairJoin):
    """Two vectors (B, H) -> [x; y; |x − y|; x ⊙ y] (Conneau et al. 2017)."""

    def __init__(self, width: int):
        super().__init__()
        self.output_size = 4 * width

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        every = torch.cat([x, y, (x - y).abs(), x * y], dim=1)  # (B, 4*H)
        return every


class Concat(nn.Module, PairJoin):
    """Two vectors (B, H) side by side: [x; y]."""

    def __init__(self, width: int):
        super().__init__()
        self.output_size = 2 * width

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        both = torch.cat([x, y], dim=1)  # (B, 2*H)
        return both


class DotProduct(nn.Module, PairJoin):
    """Two vectors (B, H) -> one number, x·y."""

    def __init__(self, width: int):
        super().__init__()
        self.output_size = 1

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum(1, keepdim=True)


class BilinearForm(nn.Module, PairJoin, WeightMatrices):
    """Two vectors (B, H) -> one number, x W y."""

    def __init__(self, width: int):
        super().__init__()
        self.output_size = 1
        self.weight = nn.Parameter(torch.empty(width, width))
        nn.init.xavier_uniform_(self.weight)

    def weight_matrices(self) -> list[Tensor]:
        """Return W."""
        return [self.weight]

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        turned = x @ self.weight  # (B, H)
        return (turned * y).sum(1, keepdim=True)


class CosineSimilarity(nn.Module, PairJoin):
    """Two vectors (B, H) -> one number, the cosine of their angle."""

    def __init__(self, width: int):
        super().__init__()
        self.output_size = 1

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cosine_similarity(x, y, dim=1)[:, None]


@register("pair", "towers")
class BiEncoder(nn.Module, Pair):
    """Each text becomes one vector, by the same network; then [x; y; |x − y|; x ⊙ y]."""

    encodes_separately = True
    has_text_vectors = True

    def __init__(self, input_size: int):
        super().__init__()
        self.output_size = input_size

    def forward(self, first: Padded, second: Padded) -> tuple[Padded, Padded]:
        """The states of two texts as they are: they do not look at each other."""
        return first, second

    def join(self, width: int) -> PairJoin:
        """Return the module that combines two pooled vectors."""
        return PairFeatures(width)


@register("pair", "concat")
class ConcatTowers(BiEncoder):
    """Each text becomes one vector, as in 'towers'; then [x; y]."""

    def __init__(self, input_size: int):
        super().__init__(input_size)

    def join(self, width: int) -> PairJoin:
        """Return the module that combines two pooled vectors."""
        return Concat(width)


@register("pair", "dot")
class DotTowers(BiEncoder):
    """Each text becomes one vector, as in 'towers'; then the number x·y."""

    def __init__(self, input_size: int):
        super().__init__(input_size)

    def join(self, width: int) -> PairJoin:
        """Return the module that combines two pooled vectors."""
        return DotProduct(width)


@register("pair", "bilinear")
class BilinearTowers(BiEncoder):
    """Each text becomes one vector, as in 'towers'; then the number x W y."""

    def __init__(self, input_size: int):
        super().__init__(input_size)

    def join(self, width: int) -> PairJoin:
        """Return the module that combines two pooled vectors."""
        return BilinearForm(width)


@register("pair", "cosine")
class CosineTowers(BiEncoder):
    """Each text becomes one vector, as in 'towers'; then the number cos(x, y)."""

    def __init__(self, input_size: int):
        super().__init__(input_size)

    def join(self, width: int) -> PairJoin:
        """Return the module that combines two pooled vectors."""
        return CosineSimilarity(width)


def check_segment_marks(pair: nn.Module, framed: bool) -> None:
    """Raise a UserError if nothing marks the start of the second text."""
    if isinstance(pair, JointEncoder) and pair.mark is None and not framed:
        raise UserError(
            "pair 'joint' puts both texts into one row, and this embedder does not show where the "
            "second begins. Set pair.mark = true, or name a pre-trained network as [embedder]."
        )


def check_pool(kind: str, pool: str) -> None:
    """Raise a UserError if two texts that should become one vector are not pooled."""
    if pool == "none":
        raise UserError(
            f"pair '{kind}' makes one vector of two texts, and pool 'none' keeps every state. "
            "Choose another pool; for answers in the second text, pair 'bidaf' or 'joint'."
        )
