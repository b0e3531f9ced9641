"""Counts of n-grams, and BLEU from its sufficient statistics.

R resamples   N orders
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from weft.metrics.bootstrap import safe_divide

Tokens = Sequence[str]
NGram = tuple[str, ...]

BLEU_ORDER = 4  # of BLEU

# The rules of mteval-v13a.pl for Western languages: every ASCII sign but ' - . , stands alone; a
# full stop or comma does unless it is inside a number; a hyphen after a digit does.
_SIGN = re.compile(r"([!-&(-+/:-@\[-`{-~])")
_AFTER_WORD = re.compile(r"([^0-9])([.,])")
_BEFORE_WORD = re.compile(r"([.,])([^0-9])")
_HYPHEN = re.compile(r"([0-9])(-)")
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))


def tokenise_mteval(text: str, lowercase: bool = True) -> list[str]:
    """Words as NIST's mteval-v13a splits them; case is ignored by default."""
    text = text.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, sign in _ENTITIES:
        text = text.replace(entity, sign)
    text = _SIGN.sub(r" \1 ", f" {text} ")
    text = _AFTER_WORD.sub(r"\1 \2 ", text)
    text = _BEFORE_WORD.sub(r" \1 \2", text)
    text = _HYPHEN.sub(r"\1 \2 ", text)
    return (text.lower() if lowercase else text).split()


def count_ngrams(tokens: Tokens, n: int) -> Counter[NGram]:
    """Count n-grams."""
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def clip_ngrams(tokens: Tokens, references: Sequence[Tokens], n: int) -> Counter[NGram]:
    """The n-grams of the tokens, each as often as some one reference allows."""
    allowed: Counter[NGram] = Counter()
    for reference in references:
        allowed |= count_ngrams(reference, n)
    return count_ngrams(tokens, n) & allowed


def count_bleu_matches(tokens: Tokens, references: Sequence[Tokens]) -> list[int]:
    """Length, closest reference length (of two the shorter), and matches and n-grams by order."""
    length = len(tokens)
    closest = min((len(each) for each in references), key=lambda size: (abs(size - length), size))
    right = [clip_ngrams(tokens, references, n).total() for n in range(1, BLEU_ORDER + 1)]
    return [length, closest, *right, *(max(0, length - n) for n in range(BLEU_ORDER))]


def corpus_bleu(sums: np.ndarray) -> np.ndarray:
    """Corpus BLEU in 0–100 of sums of `bleu_row`, (R, 10 or more) -> (R,).

    An order without any match counts half of one match, the next such order a quarter, and so on,
    as in mteval-v13a and sacrebleu ("exp"); with no match or no n-gram of some order BLEU is 0.
    """
    length, closest = sums[:, 0], sums[:, 1]
    matched, total = (
        sums[:, 2 : 2 + BLEU_ORDER],
        sums[:, 2 + BLEU_ORDER : 2 + 2 * BLEU_ORDER],
    )  # (R, N)
    smoothed = np.where(matched > 0, matched, 0.5 ** np.cumsum(matched == 0, axis=1))
    scored = (total > 0).all(1) & (matched > 0).any(1)
    precisions = safe_divide(smoothed, total)
    logs = np.log(np.where(precisions > 0, precisions, 1.0)).mean(1)
    brevity = np.minimum(0.0, 1 - safe_divide(closest, length))
    return 100 * np.where(scored, np.exp(logs + brevity), 0.0)
