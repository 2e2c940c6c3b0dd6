// A text block that streams: finished Markdown blocks are rendered once and never touched again, only the open one is.
//
// Each Markdown block has its own <div>, in the <div> of a stretch of blocks. Nothing is moved when it closes, so a selection
// in it survives. A long text that comes at once is drawn in slices, and an open block that has become long in parts: no frame
// is long.

import type { Token } from "marked";
import { type CodeBlock, codeBlock, type Links, lex, renderBlock } from "../markdown";
import { h, patch } from "./dom";
import { split } from "./split";

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n]*\n/;
/** The beginning of something whose kind cannot be told yet: "1" may go on as a list item. */
const UNDECIDED = /^\s*(?:\d{1,9}[.)]?|[-+*]|[`~]{1,3}|<[^>]*|\|.*)\s*$/;
const SMALL = 4_000; // an open block up to this size is rendered each frame; larger ones less often: see #tooSoon
const STRETCH = 24; // blocks: one or two screens of prose
const SLICE = 2_000; // characters drawn in one go

interface OpenFence {
  readonly block: CodeBlock;
  /** The line that closes it; the second form is for the end of the text, where no newline follows. */
  readonly close: readonly [RegExp, RegExp];
}

export class MarkdownStream {
  readonly root = h("div", { class: "aw-md" });
  #text = "";
  #unread = "";
  #rest = "";
  #done = false;
  #links: Links = {};
  #open: HTMLElement | undefined;
  /** The kind of the block of which the next part is drawn; empty if a new one begins. */
  #goesOn = "";
  #fence: OpenFence | undefined;
  #renderedAt = Number.NEGATIVE_INFINITY;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #remoteImages: boolean;

  constructor(remoteImages = false) {
    this.#remoteImages = remoteImages;
  }

  /** Show `text`. Only what came since the last call is looked at, unless it is another text. */
  update(text: string, done: boolean): void {
    if (!text.startsWith(this.#text)) {
      this.#reset();
    }
    this.#unread += text.slice(this.#text.length).replaceAll("\r", "");
    this.#text = text;
    this.#done = done;
    this.#read();
  }

  dispose(): void {
    clearTimeout(this.#timer);
  }

  #reset(): void {
    this.root.replaceChildren();
    this.#text = this.#unread = this.#rest = "";
    this.#links = {};
    this.#goesOn = "";
    this.#open = this.#fence = undefined;
  }

  #read(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#rest += this.#unread.slice(0, SLICE);
    this.#unread = this.#unread.slice(SLICE);
    if (this.#unread === "") {
      this.#advance(this.#done);
    } else {
      this.#advance(false);
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#read());
    }
  }

  #advance(done: boolean): void {
    while (this.#rest) {
      if (this.#fence ? !this.#inFence(this.#fence, done) : !this.#outside(done)) {
        return;
      }
    }
    if (done) {
      this.#fence?.block.finish();
      this.#fence = this.#open = undefined;
    }
  }

  /** Code is appended as it comes: a fence of 1 MB costs 1 MB. True when the fence has closed. */
  #inFence(fence: OpenFence, done: boolean): boolean {
    const end = fence.close[done ? 1 : 0].exec(this.#rest);
    const last = this.#rest.lastIndexOf("\n") + 1;
    const held = !end && !done && /^ {0,3}[`~]*[ \t]*$/.test(this.#rest.slice(last)) ? last : this.#rest.length;
    const code = this.#rest.slice(0, end ? end.index : held);
    fence.block.append(code);
    this.#rest = end ? this.#rest.slice(end.index + end[0].length) : this.#rest.slice(held);
    if (!end) {
      return done;
    }
    fence.block.finish();
    this.#fence = this.#open = undefined;
    return true;
  }

  /** Renders the blocks that are finished, then the open one. True when there is more to look at. */
  #outside(done: boolean): boolean {
    if (!done && this.#tooSoon()) {
      return false;
    }
    this.#renderedAt = performance.now();
    const tokens = lex(this.#rest, this.#links);
    const last = tokens.findLastIndex((token) => token.type !== "space");
    const fence = done ? undefined : fenceOf(tokens[last]);
    const closed = tokens.slice(0, done ? tokens.length : fence ? last : closedCount(tokens, last));
    for (const token of closed) {
      this.#close(token);
    }
    this.#rest = done ? "" : this.#rest.slice(rawOf(closed).length);
    if (fence) {
      this.#enter(fence);
      return true;
    }
    const open = tokens.slice(closed.length);
    const at = open.findIndex((token) => token.type !== "space");
    const tail = open[at];
    const parts = tail && !done ? split(tail) : undefined;
    if (parts) {
      this.#close(parts.token);
      this.#goesOn = parts.token.type;
      this.#rest = parts.rest + rawOf(open.slice(at + 1)); // blank lines: they end the block if anything follows
      this.#renderedAt = Number.NEGATIVE_INFINITY;
      return true;
    }
    if (tail && !done) {
      patch(this.#div(), renderBlock(mended(tail, this.#links), false, this.#remoteImages));
    }
    return false;
  }

  #close(token: Token): void {
    if (token.type === "def") {
      this.#links[token["tag"]] ??= { href: token["href"], title: token["title"] };
    }
    if (token.type === "space" || token.type === "def") {
      return;
    }
    patch(this.#div(), renderBlock(token, true, this.#remoteImages));
    this.#open = undefined;
  }

  #enter(fence: RegExpExecArray): void {
    const [head, marks = "", language = ""] = fence;
    const block = codeBlock(language, "");
    this.#div().replaceChildren(block.root);
    const close = `(?:^|(?<=\\n)) {0,3}${marks[0] ?? "`"}{${marks.length},}[ \\t]*`;
    this.#fence = { block, close: [new RegExp(`${close}\\n`), new RegExp(`${close}(?:\\n|$)`)] };
    this.#rest = this.#rest.slice(this.#rest.indexOf(head) + head.length);
  }

  #div(): HTMLElement {
    if (!this.#open) {
      this.#open = h("div");
      this.#stretch().append(this.#open);
    }
    return this.#open;
  }

  /** Where the next block belongs. */
  #stretch(): Element {
    const last = this.root.lastElementChild;
    if (last && last.childElementCount < STRETCH && !this.#goesOn) {
      return last;
    }
    if (last) {
      closeOnceDrawn(last);
    }
    const next = h("div", this.#goesOn ? { class: `aw-goes-on aw-of-${this.#goesOn}` } : {});
    this.#goesOn = "";
    this.root.append(next);
    return next;
  }

  /** A list or a table of 100 kB is one open block: it is rendered at most once a second, so the page stays quick. */
  #tooSoon(): boolean {
    const wait = this.#rest.length <= SMALL ? 0 : Math.min(this.#rest.length / 32, 1000);
    const left = this.#renderedAt + wait - performance.now();
    if (left <= 0) {
      return false;
    }
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#advance(false);
    }, left);
    return true;
  }
}

/** Closed, a stretch costs the page nothing while it is out of sight: with the height that it had, so it must have had one. */
function closeOnceDrawn(stretch: Element): void {
  const drawn = new ResizeObserver(() => {
    drawn.disconnect();
    requestAnimationFrame(() => stretch.classList.add("aw-closed"));
  });
  drawn.observe(stretch);
}

/** The text from which these were read. */
function rawOf(tokens: readonly Token[]): string {
  return tokens.map(({ raw }) => raw).join("");
}

/** How many blocks at the beginning cannot change any more: all before the `last` that is not blank. */
function closedCount(tokens: readonly Token[], last: number): number {
  const token = tokens[last];
  if (!token || !UNDECIDED.test(token.raw)) {
    return Math.max(last, 0);
  }
  return Math.max(
    tokens.slice(0, last).findLastIndex((before) => before.type !== "space"),
    0,
  );
}

function fenceOf(token: Token | undefined): RegExpExecArray | undefined {
  return (token?.type === "code" && FENCE.exec(token.raw)) || undefined;
}

/** The open block with its half-typed marks closed, so that bold text does not appear as asterisks first. */
function mended(token: Token, links: Links): Token {
  if (!["paragraph", "list", "blockquote", "heading"].includes(token.type)) {
    return token;
  }
  const text = closeMarks(token.raw);
  return text === token.raw ? token : (lex(text, links).find((part) => part.type !== "space") ?? token);
}

const HALF_LINE = /\n[ \t]*(?:[-=*_+#>|`~]+|\d+[.)])[ \t]*$/; // "text\n-" is a heading until the list item goes on
const HALF_LINK = /(^|[\s(])!?\[([^\]\n]*)(?:\]\([^)\n]*)?$/;

function closeMarks(raw: string): string {
  const text = raw.replace(HALF_LINE, "\n").replace(HALF_LINK, "$1$2");
  const line = text.slice(text.lastIndexOf("\n") + 1);
  for (const mark of ["`", "**"]) {
    if (line.split(mark).length % 2 === 0) {
      const trimmed = text.trimEnd().replace(/([^*])\*$/, "$1");
      return trimmed.endsWith(mark) ? trimmed.slice(0, -mark.length) : trimmed + mark;
    }
  }
  return text;
}
