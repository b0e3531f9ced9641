"""The embedder of feature vectors: sizes that make no sense are refused."""

import pytest

from weft.embed.features import FeatureEmbedder
from weft.errors import UserError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": 0}, "'features' should be 1 or more here, got 0"),
        ({"features": 3, "width": 0}, "'width' should be at least 1, got 0"),
        ({"features": 3, "dropout": 1.5}, "'dropout' should be"),
        ({"features": 3, "max_positions": 0}, "'max_positions' should be at least 1, got 0"),
    ],
)
def test_sizes_that_make_no_sense(settings, message):
    with pytest.raises(UserError, match=message):
        FeatureEmbedder(**settings)


def test_only_learned_positions_limit_the_rows():
    assert FeatureEmbedder(3, max_positions=7).max_positions is None
    assert FeatureEmbedder(3, max_positions=7, positions="learned").max_positions == 7
