// Where an open Markdown block that has become long may be cut: what is before the cut is drawn once and never again.
//
// Otherwise each frame would read and draw the whole of it: a list of 30,000 tokens would hold the page up. Pure.

import type { Token, Tokens } from "marked";

/**
 * Characters from which a block of this kind is cut. A cut list or quotation cannot be seen; a paragraph gets a line break, a
 * table its head again.
 */
const LONG: Readonly<Record<string, number>> = { list: 2_000, paragraph: 4_000, table: 4_000, blockquote: 4_000 };
const KEPT = 500; // of a paragraph: its end may still change, a mark may close in it
const SENTENCE_END = /(?:[.!?…:;]["'”’)\]]*\s+|\n\s*)(?=[\p{L}"'“(])(?!\p{L}[.)]\s)/gu;

export interface Split {
  /** What is finished. */
  readonly token: Token;
  /** The text of the block that goes on. */
  readonly rest: string;
}

/** `undefined`: it is short, or there is no place to cut it. */
export function split(token: Token): Split | undefined {
  if (token.raw.length <= (LONG[token.type] ?? Number.POSITIVE_INFINITY)) {
    return;
  }
  switch (token.type) {
    case "list":
      return splitList(token as Tokens.List);
    case "table":
      return splitTable(token as Tokens.Table);
    case "blockquote":
      return splitQuote(token as Tokens.Blockquote);
    default:
      return splitParagraph(token as Tokens.Paragraph);
  }
}

/** Before the last item: a new list, whose numbers go on from its marker. */
function splitList(token: Tokens.List): Split | undefined {
  const items = token.items.slice(0, -1);
  const size = items.reduce((sum, item) => sum + item.raw.length, 0);
  const rest = token.raw.slice(size);
  return items.length > 0 && /^ {0,3}(?:[-+*]|\d{1,9}[.)])\s/.test(rest) ? { token: { ...token, items }, rest } : undefined;
}

/** Before the last row: a new table under the same head. */
function splitTable(token: Tokens.Table): Split | undefined {
  const [head = "", rule = "", ...rows] = token.raw.split("\n");
  const last = rows.findLastIndex((row) => row.trim() !== "");
  const rest = [head, rule, ...rows.slice(last)].join("\n");
  return last > 0 ? { token: { ...token, rows: token.rows.slice(0, last) }, rest } : undefined;
}

/** Before the last block in it; if there is one alone, where that may be cut. */
function splitQuote(token: Tokens.Blockquote): Split | undefined {
  const last = token.tokens.findLastIndex(({ type }) => type !== "space");
  const before = token.tokens.slice(0, last);
  const size = before.reduce((sum, block) => sum + block.raw.length, 0);
  const tail = token.tokens[last];
  const end = /\n*$/.exec(token.raw)?.[0] ?? "";
  if (before.some(({ type }) => type !== "space")) {
    return { token: { ...token, tokens: before }, rest: quoted(token.text.slice(size)) + end };
  }
  const parts = tail && split(tail);
  const after = token.text.slice(size + (tail?.raw.length ?? 0)); // the end of a list is not in its own text
  return parts && { token: { ...token, tokens: [parts.token] }, rest: quoted(parts.rest + after) + end };
}

function quoted(text: string): string {
  return text.replace(/^/gm, "> ");
}

/** Between two sentences that no mark spans, where what follows cannot be read as another kind of block. */
function splitParagraph(token: Tokens.Paragraph): Split | undefined {
  let [at, cut, kept] = [0, 0, 0];
  for (const [number, inline] of token.tokens.entries()) {
    if (inline.type === "text") {
      const ends = [...inline.raw.matchAll(SENTENCE_END)].map((end) => at + end.index + end[0].length);
      const found = ends.findLast((end) => end <= token.raw.length - KEPT);
      [cut, kept] = found === undefined ? [cut, kept] : [found, number];
    }
    at += inline.raw.length;
  }
  if (cut === 0) {
    return;
  }
  const before = token.tokens.slice(0, kept).reduce((sum, inline) => sum + inline.raw.length, 0);
  const end = { type: "text", raw: token.raw.slice(before, cut), text: token.raw.slice(before, cut), escaped: false };
  return { token: { ...token, tokens: [...token.tokens.slice(0, kept), end] }, rest: token.raw.slice(cut) };
}
