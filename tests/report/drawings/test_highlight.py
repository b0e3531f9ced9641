"""The strip: colours by weight, everything escaped, long texts by the passages that matter."""

import re

from weft.explain import Explanation, WordWeight
from weft.report.drawings.highlight import (
    AGAINST_COLOUR,
    CONTEXT_WORDS,
    N_CENTRES,
    highlight_words,
)
from weft.tasks.task import Answer


def explained(text, weights, read=None):
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    spans = spans if read is None else [spans[i] for i in read]
    words = tuple(WordWeight(*s, w) for s, w in zip(spans, weights, strict=True))
    return Explanation(text, Answer("yes", 0.9), "yes", "occlusion", words)


def plain(markup):
    return " ".join(re.sub(r"<[^>]+>", "", str(markup)).split())


def test_words_stand_on_grounds_of_their_weight():
    out = str(highlight_words(explained("a fine dull film", [0.001, 2.0, -1.0, 0.0])))
    assert re.search(r'title="\+2" style="background:color-mix\(in srgb, var\(--accent', out)
    assert f"{AGAINST_COLOUR} 31%" in out  # half as strong: half as deep
    assert out.count("background") == 2
    assert 'title="+0.001">a<' in out
    assert plain(out) == "a fine dull film"


def test_everything_is_escaped():
    out = str(highlight_words(explained('<b>x</b> & "y"', [1.0, 0.5, -1.0])))
    assert "<b>" not in out
    assert "&lt;b&gt;x&lt;/b&gt;" in out
    assert "&amp;" in out


def test_a_long_text_shows_what_matters():
    weights = [0.0] * 500
    weights[250], weights[252], weights[3] = 5.0, -3.0, 1.0
    text = " ".join(f"w{i}" for i in range(500))
    out = plain(highlight_words(explained(text, weights)))
    assert "w250" in out
    assert "w3" in out.split()
    assert f"w{250 - CONTEXT_WORDS}" in out
    assert "words …" in out
    shown = set(re.findall(r"w\d+", out))
    assert len(shown) <= N_CENTRES * (2 * CONTEXT_WORDS + 1) + 20
    skipped = sum(int(n) for n in re.findall(r"… (\d+) words? …", out))
    assert skipped + len(shown) == 500


def test_a_text_of_middling_length_is_shown_whole():
    text = " ".join(f"w{i}" for i in range(100))
    assert plain(highlight_words(explained(text, [1.0] * 100))) == text


def test_unread_words_are_marked():
    out = plain(highlight_words(explained("a b c d e f", [1.0, 2.0, 1.0], read=[0, 1, 5])))
    assert out == "a b … not read … f"
    assert plain(highlight_words(explained("a b c", [1.0], read=[0]))) == "a … not read …"
    assert plain(highlight_words(explained("a b c", [1.0], read=[2]))) == "… not read … c"


def test_no_words():
    assert plain(highlight_words(explained("", []))) == "no words"
    assert "background" not in highlight_words(explained("a b", [0.0, 0.0]))


def test_words_of_another_stretch_are_not_called_unread():
    from dataclasses import replace

    from weft.explain.explanation import ExplainedWord

    one = explained("a b c d e", [1.0, 0.5], read=[2, 3])
    assert plain(highlight_words(one)) == "… not read … c d … not read …"
    at = ExplainedWord(2, "c", "upos", "X", (("X", 1.0),))
    assert (
        plain(highlight_words(replace(one, at=at))) == "… read separately … c d … read separately …"
    )
