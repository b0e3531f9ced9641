"""Annotate plain text with several models at once; every layer has offsets into the text."""

from weft.annotate.document import AnnotatedDocument as AnnotatedDocument
from weft.annotate.document import AnnotatedSentence as AnnotatedSentence
from weft.annotate.document import SourceText as SourceText
from weft.annotate.pipeline import Pipeline as Pipeline
