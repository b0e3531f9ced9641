"""The interfaces of the parts: every member that other code calls on a part is declared here.

A part derives from the class of its kind and overrides what differs. Members without a value are
required; the others have the default that suits most parts. Values are named by annotations only,
so this file imports nothing at run time.

B batch   T steps   S steps of the other text   E embedding width   H hidden width   C scores
"""


class Embedder:
    """(B, T) ids, or (B, T, W) sub-token ids -> (B, T, E)."""


class Encoder:
    """(B, T, E) -> (B, T, H)."""


class Pool:
    """(B, T, H) -> (B, H), with the weight of each step where pooling has one."""


class Pair:
    """Combines the two texts of a pair, before or after they are encoded."""


class Head:
    """Encoder output -> scores. No loss, argmax or metric inside."""


class Decoder:
    """Predicts the next token from the tokens before it, and from encoder states if there are."""


class LabelSpace:
    """The answers a task can give, learned from the training labels."""


class Task:
    """Labels, loss, answers and metric of one kind of problem. Stateless: settings only."""


class ClassicModel:
    """A model that is trained without gradients through a Model: linear, n-gram, CRF."""


class Engine:
    """Texts -> scores: what a Predictor calls, neural or classic."""
