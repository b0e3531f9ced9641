"""Check coreference: documents, mention brackets, and chains."""

from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import AnnotationFault
from weft.text.annotation.frames import Mention
from weft.text.example import Example, SkipCounter
from weft.text.formats.semantics.coreference import CoreferenceDocument, read_documents

MAX_SINGLETON_FRACTION = 0.02  # of chains with one mention, in a scheme that has none


def read_examples(path: str, skipped: SkipCounter) -> Iterator[Example]:
    """Yield the documents as Examples, with the mentions that can be read."""
    for document in read_documents(path, skipped=skipped):
        if document.words:
            yield document.to_example()


def find_faults(path: str) -> Iterator[AnnotationFault]:
    """Yield the faults of each document, in file order."""
    total = alone = 0
    singletons: list[AnnotationFault] = []
    names: dict[str, int] = {}
    for number, document in enumerate(read_documents(path), 1):
        of = f"document '{document.name}'" if document.name else f"document {number}"
        first = names.setdefault(document.name, document.line)
        if document.name and first != document.line:
            detail = f"{of} also begins at line {first}"
            yield _fault("repeated document", document, document.line, detail)
        for fault in document.faults():
            yield _fault(fault.kind, document, fault.line, f"{of}: {fault.detail}")
        chains = document.annotation().chains
        lone = [own[0] for own in chains.values() if len(own) == 1]
        total, alone = total + len(chains), alone + len(lone)
        singletons += (_singleton(document, of, mention) for mention in lone)
    if alone <= MAX_SINGLETON_FRACTION * total:
        yield from singletons


def _singleton(document: CoreferenceDocument, of: str, mention: Mention) -> AnnotationFault:
    line = document.lines[mention.start]
    return _fault("chain of one mention", document, line, f"{of}: {document.describe(mention)}")


def _fault(kind: str, document: CoreferenceDocument, line: int, detail: str) -> AnnotationFault:
    start = next((i for i, number in enumerate(document.lines) if number >= line), 0)
    text = " ".join(document.words[max(start - 5, 0) : start + 15])
    return AnnotationFault(kind, f"{document.file}:{line}", text, detail)
