// A text that changes and still knows which characters of the original each of its own stands for.

import { codePointIndices, codePoints } from "./unicode.js";

export class AlignedText {
  /** `chars` are code points; [starts[i], ends[i]) are their offsets in the original text. */
  constructor(chars, starts, ends, shift = 0) {
    this.chars = chars;
    this.starts = starts;
    this.ends = ends;
    this.shift = shift; // where its part of the original begins
  }

  static of(text) {
    const chars = codePoints(text);
    return new AlignedText(chars, chars.map((_, i) => i), chars.map((_, i) => i + 1));
  }

  get length() {
    return this.chars.length;
  }

  get text() {
    return this.chars.join("");
  }

  slice(start, end) {
    const shift = start < end ? this.starts[start] : this.shift;
    const parts = [this.chars, this.starts, this.ends].map((part) => part.slice(start, end));
    return new AlignedText(...parts, shift);
  }

  /** Return the offsets in the original of the characters [start, end). */
  offsets(start, end) {
    if (start >= end) return [this.shift, this.shift];
    return [this.starts[start], this.ends[end - 1]];
  }

  keep(test) {
    const kept = this.chars.map((_, i) => i).filter((i) => test(this.chars[i]));
    const pick = (part) => kept.map((i) => part[i]);
    return new AlignedText(pick(this.chars), pick(this.starts), pick(this.ends), this.shift);
  }

  map(change) {
    return new AlignedText(this.chars.map(change), this.starts, this.ends, this.shift);
  }

  /** Replace each character by those that `change` returns; all have its offsets. */
  flatMap(change) {
    return this.transform(this.chars.flatMap((char) => [...change(char)].map((c, i) => [c, i])));
  }

  /**
   * Return the text with [char, change] for its characters. 1 or more: an added one, with the
   * offsets of the one before; 0: it replaces the next one; -n: it also replaces the n after that.
   */
  transform(rows) {
    const starts = [], ends = [];
    let next = 0;
    for (const [, change] of rows) {
      const from = change > 0 ? next - 1 : next;
      starts.push(this.starts[from] ?? 0);
      ends.push(this.ends[from] ?? 0);
      if (change <= 0) next += 1 - change;
    }
    return new AlignedText(rows.map(([char]) => char), starts, ends, this.shift);
  }

  /** Put a text in front, with the offsets of the first character. */
  prepend(text) {
    if (!this.length) return this;
    const added = [...text];
    return new AlignedText(
      [...added, ...this.chars],
      [...added.map(() => this.starts[0]), ...this.starts],
      [...added.map(() => this.ends[0]), ...this.ends],
      this.shift,
    );
  }

  /** Replace each match by a text, with the offsets of the last character that was matched. */
  replace(pattern, content) {
    const added = [...content];
    const out = [[], [], []];
    for (const [start, end, matched] of this.segments(pattern)) {
      if (!matched) {
        [this.chars, this.starts, this.ends].forEach((part, k) => {
          for (let i = start; i < end; i++) out[k].push(part[i]);
        });
        continue;
      }
      for (const char of added) {
        out[0].push(char);
        out[1].push(this.starts[end - 1] ?? 0);
        out[2].push(this.ends[end - 1] ?? 0);
      }
    }
    return new AlignedText(...out, this.shift);
  }

  /** Return [start, end, matched] of the matches of a pattern and of what is between them. */
  segments(pattern) {
    const { text } = this;
    const at = text.length === this.length ? null : codePointIndices(this.chars, text.length);
    const out = [];
    let before = 0;
    for (const match of text.matchAll(pattern)) {
      const [first, last] = [match.index, match.index + match[0].length];
      const start = at ? at[first] : first;
      const end = at ? at[last] : last;
      if (start > before) out.push([before, start, false]);
      out.push([start, end, true]);
      before = end;
    }
    if (before < this.length) out.push([before, this.length, false]);
    return out;
  }

  /** Cut at segments [start, end, matched]; `behavior` decides where a match goes. */
  split(segments, behavior) {
    const parts = [];
    let previous = null;
    for (const [start, end, matched] of behavior === "MergedWithNext" ? [...segments].reverse() : segments) {
      const joins = {
        MergedWithPrevious: matched && previous && !previous.matched,
        MergedWithNext: matched && previous && !previous.matched,
        Contiguous: previous && matched === previous.matched,
      }[behavior];
      if (joins && behavior === "MergedWithNext") previous.start = start;
      else if (joins) previous.end = end;
      else parts.push({ start, end, matched });
      if (!joins) previous = parts.at(-1);
      else if (behavior !== "Contiguous") previous = { matched: true };
    }
    if (behavior === "MergedWithNext") parts.reverse();
    return parts
      .filter((part) => part.start < part.end && !(behavior === "Removed" && part.matched))
      .map((part) => this.slice(part.start, part.end));
  }
}
