"""The page of `weft annotate`: every sentence with all of its layers."""

import datetime
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from weft.annotate import AnnotatedDocument, AnnotatedSentence
from weft.errors import UserError
from weft.report import html
from weft.report.drawings import chains, tagged_text
from weft.report.drawings.dependency_svg import draw_dependencies
from weft.report.drawings.frames import draw_frames
from weft.tasks.annotation import Annotation

MAX_PAGE_SENTENCES = 200  # of all documents; others are counted
MAX_CHAINS = 40  # of a document that are listed
MAX_MENTIONS = 12  # of a chain that are listed
TITLES = {
    "tags": "parts of speech",
    "dependencies": "dependencies",
    "roles": "semantic roles",
    "entities": "entities",
    "coreference": "coreference",
}


@dataclass(frozen=True)
class SentenceCard:
    """The drawings of one sentence by layer; a layer without anything to show has none."""

    number: int
    start: int
    end: int
    text: Markup  # with its mentions, if coreference is resolved
    drawings: list[tuple[str, Markup]]


@dataclass(frozen=True)
class DocumentCard:
    """A document with its sentences and its chains of several mentions."""

    name: str
    sentences: list[SentenceCard]
    chains: list[tuple[str, list[str], int]]  # its number, some mentions, how many there are
    more_chains: int


def write(
    path: Path,
    documents: Sequence[AnnotatedDocument],
    name: str,
    *,
    left_out: int,
    command: Sequence[str],
) -> None:
    """Write the page; raise UserError if that fails."""
    html.save(path, render(documents, name, left_out=left_out, command=command))


def render(
    documents: Sequence[AnnotatedDocument],
    name: str,
    *,
    left_out: int = 0,
    command: Sequence[str] = (),
) -> str:
    """Render the whole page; `left_out` sentences are counted, not shown."""
    cards = [_document_card(one) for one in documents]
    layers = documents[0].layers if documents else ()
    return html.render(
        "annotate.html",
        name=name,
        documents=cards,
        layers=[(layer, TITLES[layer]) for layer in layers],
        shown=sum(len(card.sentences) for card in cards),
        words=sum(len(one.words) for one in documents),
        left_out=left_out,
        command=shlex.join(command),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def _document_card(document: AnnotatedDocument) -> DocumentCard:
    names = sorted({label for _, _, label in document.entities})
    sentences = [
        _sentence_card(document, sentence, number, mentions, names)
        for number, (sentence, mentions) in enumerate(
            zip(document.sentences, document.sentence_mentions(), strict=True), 1
        )
    ]
    listed = []
    for chain, spans in document.chains().items():
        if len(spans) > 1:
            texts = [" ".join(document.text[a:b].split()) for a, b in spans[:MAX_MENTIONS]]
            listed.append((chain, texts, len(spans)))
    more = max(len(listed) - MAX_CHAINS, 0)
    return DocumentCard(document.name, sentences, listed[:MAX_CHAINS], more)


def _sentence_card(
    document: AnnotatedDocument,
    sentence: AnnotatedSentence,
    number: int,
    mentions: Sequence[tuple[str, int, int]],
    names: Sequence[str],
) -> SentenceCard:
    text = document.text[sentence.start : sentence.end]
    shown: Markup = escape(" ".join(text.split()))
    if mentions:
        places = tuple((a - sentence.start, b - sentence.start) for a, b in sentence.places)
        shown = chains.draw_chains(
            Annotation("chains", sentence.words, places, text, mentions=tuple(mentions))
        )
    drawings = list(_draw_layers(document, sentence, text, names))
    return SentenceCard(number, sentence.start, sentence.end, shown, drawings)


def _draw_layers(
    document: AnnotatedDocument, sentence: AnnotatedSentence, text: str, names: Sequence[str]
) -> Iterator[tuple[str, Markup]]:
    """Yield the layers that have something to show, with their drawings."""
    start, end = sentence.start, sentence.end
    tags = sentence.tags.get("upos") or next(iter(sentence.tags.values()), ())
    spans = [(a - start, b - start, n) for a, b, n in document.entities if start <= a and b <= end]
    if spans:
        try:
            yield "entities", tagged_text.draw_entities(text, spans, names=names)
        except UserError:  # spans that cross cannot be drawn; the other formats have them
            yield "entities", Markup("<p>{}</p>").format(", ".join(
                f"{text[a:b]} ({label})" for a, b, label in spans
            ))  # fmt: skip
    if sentence.heads:
        yield (
            "dependencies",
            draw_dependencies(sentence.words, sentence.heads, sentence.relations, tags),
        )
    elif tags:
        yield "tags", tagged_text.draw_tags(sentence.words, tags)
    if sentence.frames:
        places = tuple((a - start, b - start) for a, b in sentence.places)
        annotation = Annotation("frames", sentence.words, places, text, frames=sentence.frames)
        yield "roles", draw_frames(text, annotation)
