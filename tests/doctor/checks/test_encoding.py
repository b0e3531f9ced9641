"""Mojibake, invisible signs, scripts and what makes two texts the same."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.doctor.checks.encoding import (
    clean_text,
    describe_invisible,
    describe_unicode_form,
    find_damage,
    fix_mojibake,
)
from weft.doctor.checks.scripts import detect_script
from weft.doctor.diagnose import examine
from weft.doctor.words import normalise, split_words
from weft.text.example import Example

SOUND = (
    "café naïve",
    "Größe über Ärger – “Zitat”",
    "L'été\u00a0: «\u00a0déjà vu\u00a0»",
    "Привет мир",
    "Ελλάδα",
    "你好世界",
    "Ångström",
    "😀 done",
    "FORÊT À ÎLE ÂGE",
)


def garbled(text: str, encoding: str) -> str:
    """UTF-8 read in another encoding, as browsers read it: undefined bytes stay control signs."""
    return "".join(bytes([b]).decode(encoding, "ignore") or chr(b) for b in text.encode())


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
@pytest.mark.parametrize("text", SOUND)
def test_mojibake_is_read_back(text, encoding):
    assert fix_mojibake(text) == text
    wrong = garbled(text, encoding)
    assert wrong != text
    assert fix_mojibake(wrong) == text
    assert "mojibake" in find_damage(wrong)
    assert "mojibake" not in find_damage(text)


def test_mojibake_may_have_happened_twice():
    assert fix_mojibake(garbled(garbled("café", "cp1252"), "cp1252")) == "café"


@given(st.text(st.characters(max_codepoint=0x24F, categories=["L", "N", "Zs", "Po"])))
def test_fixing_twice_changes_nothing_more(text):
    assert clean_text(clean_text(text)) == clean_text(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("lost \ufffd sign", "replacement"),
        ("bell\x07", "control"),
        ("a\x85b", "control"),
        ("zero\u200bwidth", "invisible"),
        ("mark \ufeffinside", "invisible"),
        ("word\u2060joiner", "invisible"),
        ("wo\u200drd", "invisible"),
        ("wo\u200crd 1\u200d2", "invisible"),
        (unicodedata.normalize("NFD", "café"), "normalisation"),
        ("good <br /> film", "markup"),
        ("salt &amp; pepper", "markup"),
    ],
)
def test_damage_has_a_name(text, kind):
    assert find_damage(text) == (kind,)


JOINED = [
    "a family 👨\u200d👩\u200d👧 and ❤\ufe0f\u200d🔥, 👩🏽\u200d🚀, 🏳\ufe0f\u200d🌈",
    "می\u200cخواهم",  # Persian
    "क्\u200dष",  # Hindi
]


@pytest.mark.parametrize(
    "text", ["a < b & c", "plain", "tab\tand\nbreak", "x<y>z", "R&D;", *JOINED]
)
def test_sound_texts_have_none(text):
    assert find_damage(text) == ()


@pytest.mark.parametrize("text", JOINED)
def test_cleaning_keeps_what_belongs_to_the_spelling(text):
    assert clean_text(text) == unicodedata.normalize("NFC", text)


def test_invisible_characters_and_unicode_forms_are_named():
    split = unicodedata.normalize("NFD", "café")
    assert (
        describe_invisible("zero\u200bwidth\u2060")
        == "U+200B zero width space at character 4, 2 in all"
    )
    assert describe_invisible("plain") == ""
    assert describe_unicode_form(f"one {split}") == "NFD: 'é' is 'e' + U+0301 at character 7"
    assert (
        describe_unicode_form(f"café {split}")
        == "NFC and NFD mixed: 'é' is 'e' + U+0301 at character 8"
    )
    assert describe_unicode_form("café") == "NFC"


def test_mixed_unicode_forms_are_reported_with_their_lines():
    texts = ["one café", unicodedata.normalize("NFD", "two café"), "three cafés", "plain words"]
    rows = [Example(text, "x", file="a.txt", line=i) for i, text in enumerate(texts, 1)]
    result = examine({"data": lambda: iter(rows)})
    (found,) = [one for one in result.findings if one.kind == "normalisation"]
    assert found.title == (
        "1 text of data has letters in decomposed Unicode form (NFD, not NFC), so that equal "
        "words differ; 2 texts are in NFC."
    )
    assert [place.where for place in found.places] == ["a.txt:2"]
    assert found.places[0].detail == "NFD: 'é' is 'e' + U+0301 at character 7"


def test_cleaning_keeps_paragraphs():
    assert clean_text("  a \t b \r\n\r\n\r\n\r\n c\x00 ") == "a b\n\nc"


def test_windows_punctuation_read_as_latin_1_comes_back():
    assert clean_text("well\x85 \x93quoted\x94 \x96 é") == "well… “quoted” – é"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Hello, мир wide web", "Latin"),
        ("Привет, world", "Cyrillic"),
        ("你好世界 abc", "Han"),
        ("今日は良い天気です", "Japanese"),
        ("안녕하세요", "Hangul"),
        ("नमस्ते", "Devanagari"),
        ("สวัสดี", "Thai"),
        ("مرحبا", "Arabic"),
        ("ＡＢＣ", "Latin"),
        ("Ελλάδα µ", "Greek"),
        ("12 + 3 µ", "no letters"),
    ],
)
def test_scripts_by_their_letters(text, name):
    assert detect_script(text) == name


@pytest.mark.parametrize("other", ["  Straße 5 ", "STRASSE  5", "Ｓｔｒaße\u00a0５"])
def test_case_spaces_and_form_do_not_count(other):
    assert normalise(other) == normalise("straße 5") == "strasse 5"


def test_words_of_several_scripts():
    assert split_words("don't buy the well-made u.s. card?!") == [
        *("don't", "buy", "the", "well-made", "u.s", ".", "card", "?!"),
    ]
    assert split_words("who 's it") == ["who", "'s", "it"]
    assert split_words("你好 world") == ["你", "好", "world"]
