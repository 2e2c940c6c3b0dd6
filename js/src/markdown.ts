// Markdown and HTML from outside -> DOM that is safe to show: nothing runs, nothing is fetched, nothing is named.
//
// A model's words and a tool's output are hostile input: a remote image alone sends the conversation to its server. A person
// who knows that may have the images of a model's Markdown loaded all the same (`remoteImages`, by the kernel's configuration).

import DOMPurify from "dompurify";
import { Lexer, Marked, type Token } from "marked";
import { highlight } from "./highlight";
import { h } from "./view/dom";

const TAGS =
  "a b blockquote br caption code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre q s samp small span strong sub summary sup table tbody td tfoot th thead tr u ul var";
// no id, no name: `<a id="require">` would become a global of the host page; no style: an overlay could cover its buttons
const ATTRIBUTES = "align alt class colspan dir height href lang open rowspan src start title width";
const NOT_ADDRESSES = ["align", "colspan", "dir", "height", "lang", "rowspan", "start", "width"]; // or they would have to look like one
const SAFE_LINK = /^(?:https?:|mailto:|#)/i;
const SAFE_IMAGE = /^data:image\/[a-z0-9.+-]+[;,]/i;
const OWN_CLASS = /^(?:language-[\w+#.-]+|dataframe)$/; // any other class would borrow the host's styles

const purify = DOMPurify();
purify.addHook("afterSanitizeAttributes", (node) => {
  const kept = [...node.classList].filter((name) => OWN_CLASS.test(name));
  if (kept.length > 0) {
    node.setAttribute("class", kept.join(" "));
  } else {
    node.removeAttribute("class");
  }
  const href = node.getAttribute("href");
  if (href !== null && !href.startsWith("#")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
    node.setAttribute("title", href);
  }
  const src = node.getAttribute("src");
  if (src !== null && !SAFE_IMAGE.test(src)) {
    node.removeAttribute("src"); // here, in the inert document: once imported, an <img> fetches even if it is not shown
    node.setAttribute("data-address", src);
  }
});

/** HTML from outside as DOM. The only way in which HTML text enters a card. */
export function sanitise(html: string, remoteImages = false): DocumentFragment {
  const fragment = purify.sanitize(html, {
    ALLOWED_TAGS: TAGS.split(" "),
    ALLOWED_ATTR: ATTRIBUTES.split(" "),
    ALLOWED_URI_REGEXP: SAFE_LINK,
    ADD_URI_SAFE_ATTR: NOT_ADDRESSES,
    ALLOW_ARIA_ATTR: false,
    ALLOW_DATA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
  for (const image of fragment.querySelectorAll("img[data-address]")) {
    image.replaceWith((remoteImages && loaded(image)) || addressOf(image));
  }
  for (const table of fragment.querySelectorAll("table")) {
    const scroller = h("div", { class: "aw-scroll" });
    table.replaceWith(scroller);
    scroller.append(table);
  }
  return fragment;
}

/** A remote image that may be loaded. Its server is not told from which page. */
function loaded(image: Element): Node | undefined {
  const address = image.getAttribute("data-address") ?? "";
  if (!/^https:\/\//i.test(address)) {
    return undefined;
  }
  const alt = image.getAttribute("alt") ?? "";
  return h("img", { referrerpolicy: "no-referrer", loading: "lazy", alt, title: alt || address, src: address });
}

/** A remote image as a link: the person sees the address and decides. */
function addressOf(image: Element): Node {
  return addressLink(image.getAttribute("data-address") ?? "", image.getAttribute("alt") || "image");
}

/** Something at an address that is not fetched. */
export function addressLink(address: string, label: string): Node {
  const text = `${label}: ${address}`;
  if (!/^https?:/i.test(address)) {
    return h("span", {}, text);
  }
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer", title: "not loaded: an image from outside" }, text);
}

const marked = new Marked({
  gfm: true,
  renderer: { checkbox: ({ checked }) => (checked ? "☑ " : "☐ ") },
});

export type Links = Record<string, { href: string | null; title: string | null | undefined }>;

/** The blocks of a Markdown text. `links` are the definitions that stood before it. */
export function lex(text: string, links: Links): Token[] {
  const lexer = new Lexer(marked.defaults);
  lexer.tokens.links = Object.assign(Object.create(null), links);
  try {
    return lexer.lex(text);
  } catch {
    return [asItStands(text)];
  }
}

/** What is nested a thousand times over is more than the reader's stack holds. */
function asItStands(text: string): Token {
  return { type: "paragraph", raw: text, text, tokens: [{ type: "text", raw: text, text, escaped: false }] };
}

/** One block as DOM. `done` colours its code: not before, or every frame would colour it again. */
export function renderBlock(token: Token, done: boolean, remoteImages = false): DocumentFragment {
  const fragment = sanitise(htmlOf(token).trimEnd(), remoteImages && done);
  for (const code of fragment.querySelectorAll("pre > code")) {
    const language = /language-(\S+)/.exec(code.className)?.[1] ?? "";
    const block = codeBlock(language, code.textContent ?? "");
    code.parentElement?.replaceWith(block.root);
    if (done) {
      block.finish();
    }
  }
  return fragment;
}

function htmlOf(token: Token): string {
  try {
    return marked.parser([token]);
  } catch {
    return marked.parser([asItStands(token.raw)]);
  }
}

export interface CodeBlock {
  readonly root: HTMLElement;
  /** More code, as it comes. */
  append(source: string): void;
  /** The fence has closed: colour it. */
  finish(): void;
}

const PART = 8_000; // characters

/** A block of code with its language and a copy button. */
export function codeBlock(language: string, source: string): CodeBlock {
  let text = document.createTextNode(source);
  const code = h("code", {}, text);
  const copy = h("button", { type: "button", class: "aw-copy", "aria-label": "Copy code", "data-lm-suppress-shortcuts": "true" }, "Copy");
  const bar = h("div", { class: "aw-code-bar" }, h("span", {}, language), copy);
  const append = (more: string): void => {
    if (text.length > PART && text.data.endsWith("\n")) {
      text = document.createTextNode(""); // in a box of its own: a browser lays out the whole of a box for each letter
      code.append(h("span", { class: "aw-part" }, text));
    }
    text.appendData(more);
  };
  const finish = (): void => {
    text.data = text.data.replace(/\n$/, "");
    highlight(code, language);
  };
  return { root: h("div", { class: "aw-code" }, bar, h("pre", {}, code)), append, finish };
}
