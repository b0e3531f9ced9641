"""Decode tokens one by one: text is emitted as soon as its characters are complete."""

from collections.abc import Iterable, Mapping

from weft.tokens.tokenizer import NO_OOV_WORDS, Tokenizer

REPLACEMENT = "\ufffd"  # what stands for bytes that make no character, or not yet


class StreamingDecoder:
    """Gives the text that each new token adds to those before it.

    Some tokens end inside a character, and a space may belong to the token after it: only what
    later tokens cannot change is given, and what was given is the whole text when put together.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        before: Iterable[int] = (),
        strip_space: bool = False,
        oov_words: Mapping[int, str] = NO_OOV_WORDS,
    ) -> None:
        self.tokenizer, self.oov_words = tokenizer, oov_words
        self.strip_space = (
            strip_space  # what stands before needs no space, though its tokens may have none
        )
        self.ids = list(before)  # from the last token that began a piece of text
        self.num_emitted = len(self.ids)  # of these, how many have been given

    def add(self, id: int) -> str:
        """The text that is whole with one more token; "" while a character is not."""
        if id >= len(self.tokenizer) and id not in self.oov_words:
            return ""  # a mark that the tokenizer does not have
        self.ids.append(id)
        return self._emit(last=False)

    def rest(self) -> str:
        """Return the text held back, at the end of the stream."""
        return self._emit(last=True)

    def _emit(self, last: bool) -> str:
        # A few tokens before are spelled too: what joins a token to the last one depends on it.
        before = self.tokenizer.decode(self.ids[: self.num_emitted], self.oov_words)
        text = self.tokenizer.decode(self.ids, self.oov_words)
        if not last and (text.endswith(REPLACEMENT) or len(text) <= len(before)):
            return ""
        self.ids = self.ids[self.num_emitted :] if self.num_emitted < len(self.ids) else self.ids
        self.num_emitted = len(self.ids)
        fresh = text[len(before) :]
        if fresh and self.strip_space:
            self.strip_space = False
            return fresh if before[-1:].isspace() else fresh.lstrip(" ")
        return fresh
