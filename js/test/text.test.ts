import { afterEach, expect, test, vi } from "vitest";
import type * as markdown from "../src/markdown";
import { MarkdownStream } from "../src/view/text";

const lexed = vi.hoisted(() => ({ characters: 0 }));

vi.mock("../src/markdown", async (original) => {
  const actual = await original<typeof markdown>();
  const lex: typeof markdown.lex = (text, links) => {
    lexed.characters += text.length;
    return actual.lex(text, links);
  };
  return { ...actual, lex };
});

function blocksOf({ root }: MarkdownStream): Element[] {
  return [...root.children].flatMap((stretch) => [...stretch.children]);
}

const DOCUMENT = `# Title

A paragraph with **bold**, \`code\` and [a link](https://example.org/a_b?c=d).
It goes on here.

- one
- two

  still two
  - nested

1. first

2. second

> a quotation
> on two lines

| a | b |
|---|--:|
| 1 | 2 |

\`\`\`python
def f(x):
    return "\`\`"  # not a fence

\`\`\`
~~~
\`\`\`
~~~

    indented code

Setext
======

[ref]: https://example.org/ref

A [ref] and <b>html</b>.

<details><summary>more</summary>inside</details>

***

The end, with ![an image](https://evil.example/x.png).`;

function streamed(text: string, step: number): MarkdownStream {
  const stream = new MarkdownStream();
  for (let at = step; at < text.length; at += step) {
    stream.update(text.slice(0, at), false);
  }
  stream.update(text, true);
  return stream;
}

function atOnce(text: string): string {
  const stream = new MarkdownStream();
  stream.update(text, true);
  return stream.root.innerHTML;
}

test.each([1, 3, 8, 40, 1000])("streaming by %i characters ends as rendering at once", (step) => {
  expect(streamed(DOCUMENT, step).root.innerHTML).toBe(atOnce(DOCUMENT));
});

test("Windows line ends make no difference", () => {
  expect(streamed(DOCUMENT.replaceAll("\n", "\r\n"), 31).root.innerHTML).toBe(atOnce(DOCUMENT));
});

test("a finished block is never touched again", async () => {
  const stream = new MarkdownStream();
  const parts = Array.from({ length: 60 }, (_, number) => `Paragraph **${number}** with some words.\n\n`);
  let text = "";
  const touched: MutationRecord[] = [];
  const seen = new Map<number, Element>();
  for (const [number, part] of parts.entries()) {
    for (const word of part.split(/(?<= )/)) {
      text += word;
      stream.update(text, false);
    }
    const finished = blocksOf(stream)[number - 1];
    if (finished) {
      seen.set(number - 1, finished);
      new MutationObserver((records) => touched.push(...records)).observe(finished, {
        subtree: true,
        childList: true,
        characterData: true,
        attributes: true,
      });
    }
  }
  stream.update(text, true);
  await Promise.resolve();
  expect(touched).toEqual([]);
  for (const [number, element] of seen) {
    expect(blocksOf(stream)[number]).toBe(element);
  }
});

test("the open block keeps its text node while it grows, so a selection in it survives", () => {
  const stream = new MarkdownStream();
  stream.update("Some words", false);
  const node = stream.root.querySelector("p")?.firstChild;
  stream.update("Some words and more", false);
  expect(stream.root.querySelector("p")?.firstChild).toBe(node);
  expect(node?.textContent).toBe("Some words and more");
});

test("marks that are half typed are not shown", () => {
  const stream = new MarkdownStream();
  const shown = (text: string): string => {
    stream.update(text, false);
    return stream.root.textContent ?? "";
  };
  expect(shown("A **bo")).toBe("A bo");
  expect(shown("A **bold*")).toBe("A bold");
  expect(shown("A **bold** and `co")).toBe("A bold and co");
  expect(shown("A **bold** and `code` [li")).toBe("A bold and code li");
  expect(shown("A **bold** and `code` [link](https://exa")).toBe("A bold and code link");
  expect(shown("A **bold** and `code` [link](https://example.org).\n-")).not.toContain("-");
  expect(stream.root.querySelector("h2")).toBeNull();
});

test("open code is plain and appended; it is coloured when its fence closes", () => {
  const stream = new MarkdownStream();
  stream.update("```python\nx = 1\n", false);
  const code = stream.root.querySelector("code");
  const text = code?.firstChild;
  stream.update("```python\nx = 1\ny = 'a'\n``", false);
  expect(code?.firstChild).toBe(text);
  expect(code?.textContent).toBe("x = 1\ny = 'a'\n");
  expect(code?.querySelector("span")).toBeNull();
  stream.update("```python\nx = 1\ny = 'a'\n```\nafter", false);
  expect(stream.root.querySelector("code")).toBe(code);
  expect(code?.querySelector(".aw-t-str")?.textContent).toBe("'a'");
  expect(code?.textContent).toBe("x = 1\ny = 'a'");
});

test("another text replaces the first", () => {
  const stream = new MarkdownStream();
  stream.update("one\n\ntwo", false);
  stream.update("three", true);
  expect(stream.root.textContent).toBe("three");
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("a large open block is drawn less often, and not forgotten", () => {
  vi.useFakeTimers();
  const stream = new MarkdownStream();
  const line = "  a line of a long list item with some *words*\n";
  const item = (lines: number): string => `- ${line.repeat(lines).trimStart()}`;
  stream.update(item(80), false);
  vi.runAllTimers();
  stream.update(item(101), false);
  expect(stream.root.querySelectorAll("em")).toHaveLength(80);
  vi.advanceTimersByTime(1_100);
  expect(stream.root.querySelectorAll("em")).toHaveLength(101);
  stream.dispose();
});

test.each([
  ["paragraphs", (n: number) => `Paragraph ${n} with **bold** text and \`code\`, long enough to be a usual one.\n\n`],
  ["code", (n: number) => (n === 0 ? "```python\n" : `line_${n} = "some text in a long program"\n`)],
])("%s are read a bounded number of times, however long the text is", (_name, part) => {
  const stream = new MarkdownStream();
  let text = "";
  lexed.characters = 0;
  for (let number = 0; number < 100; number += 1) {
    text += part(number);
    stream.update(text, false);
  }
  expect(lexed.characters).toBeLessThan(4 * text.length);
});

const LONG_BLOCKS: [string, (number: number) => string][] = [
  ["paragraph", (n) => `Sentence w${n} of it has **bold** words. It ends here: `],
  ["list", (n) => `- item w${n} with **bold** text and \`code\`, long enough to be a usual one\n`],
  ["numbered list", (n) => `${n + 1}. item w${n} with **bold** text\n`],
  ["list with blank lines", (n) => `- item w${n} with **bold** text and \`code\`, long enough to be a usual one\n\n`],
  ["quotation", (n) => `> Line w${n} of it has **bold** words.\n`],
  ["quotation of a paragraph", (n) => `${n === 0 ? "> " : ""}Sentence w${n} of it has **bold** words. It ends here: `],
  ["quotation of paragraphs", (n) => `> Paragraph w${n} of it\n> has **bold** words.\n>\n`],
  ["quotation of a list", (n) => `> - item w${n} with **bold** text and \`code\`, long enough to be a usual one\n`],
  ["quotation in a quotation", (n) => `> > Paragraph w${n} of it has **bold** words.\n> >\n`],
  ["table", (n) => `${n === 0 ? "| a | b |\n|---|---|\n" : ""}| cell w${n} with some words | and **bold** ones |\n`],
];

/** Streams a block of `parts` parts; gives how much was read. */
function readFor(part: (number: number) => string, parts: number): { stream: MarkdownStream; read: number } {
  vi.useFakeTimers();
  const stream = new MarkdownStream();
  let text = "";
  lexed.characters = 0;
  for (let number = 0; number < parts; number += 10) {
    text += Array.from({ length: 10 }, (_, at) => part(number + at)).join("");
    stream.update(text, false);
    vi.advanceTimersByTime(300);
  }
  const read = lexed.characters;
  stream.update(text, true);
  return { stream, read };
}

test.each(LONG_BLOCKS)("a long %s is read a bounded number of times, and nothing of it is lost", (_name, part) => {
  const short = readFor(part, 200);
  const long = readFor(part, 400);
  expect(long.read / short.read).toBeLessThan(2.5); // 4, if each frame read the whole
  const words = (long.stream.root.textContent ?? "").match(/\bw\d+/g);
  expect(words).toEqual(Array.from({ length: 400 }, (_, number) => `w${number}`));
  expect(long.stream.root.textContent).not.toContain("**");
});

test("a long numbered list goes on with its numbers, a long table under its head", () => {
  const lists = readFor((n) => `${n + 1}. item number ${n + 1} with **some** words\n`, 200).stream.root.querySelectorAll("ol");
  expect(lists.length).toBeGreaterThan(2);
  let number = 1;
  for (const list of lists) {
    expect(list.start).toBe(number);
    number += list.children.length;
  }
  const tables = readFor((n) => `${n === 0 ? "| a | b |\n|---|--:|\n" : ""}| cell ${n} with some words | ${n} |\n`, 400).stream.root;
  const [first, ...others] = tables.querySelectorAll("thead");
  expect(others.length).toBeGreaterThan(0);
  for (const head of others) {
    expect(head.outerHTML).toBe(first?.outerHTML);
  }
});

test.each(LONG_BLOCKS)("a long %s that comes in pieces of any length loses no letter", (_name, part) => {
  vi.useFakeTimers();
  let seed = 1;
  const random = (): number => {
    seed = (seed * 16_807) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  const text = Array.from({ length: 160 }, (_, at) => part(at)).join("");
  const words = ({ root }: MarkdownStream): string[] => (root.textContent ?? "").match(/\S{2,}/g) ?? []; // a table has its head again: a, b
  const whole = new MarkdownStream();
  whole.update(text, true);
  vi.runAllTimers();
  for (let play = 0; play < 4; play += 1) {
    const stream = new MarkdownStream();
    for (let at = 0; at < text.length; at += Math.ceil(random() * 700)) {
      stream.update(text.slice(0, at), false);
      vi.advanceTimersByTime(random() * 1_200);
    }
    stream.update(text, true);
    vi.runAllTimers();
    expect(words(stream)).toEqual(words(whole));
  }
});

test("a block that follows a long one stays a block of its own", () => {
  vi.useFakeTimers();
  const paragraphs = Array.from({ length: 4 }, (_, number) => `Paragraph ${number}.`);
  for (const [, part] of LONG_BLOCKS) {
    const stream = new MarkdownStream();
    let text = Array.from({ length: 120 }, (_, at) => part(at)).join("");
    for (const paragraph of ["", ...paragraphs]) {
      text += `${paragraph}\n\n`;
      stream.update(text, false);
      vi.runAllTimers();
    }
    stream.update(text, true);
    const last = blocksOf(stream).slice(-4);
    expect(last.map(({ innerHTML }) => innerHTML.trim())).toEqual(paragraphs.map((paragraph) => `<p>${paragraph}</p>`));
  }
});

test("a long text that comes at once is drawn in slices, whole in the end", () => {
  vi.useFakeTimers();
  const text = Array.from({ length: 100 }, (_, number) => `Paragraph w${number} with **bold** text.\n\n`).join("");
  const stream = new MarkdownStream();
  stream.update(text, true);
  expect(blocksOf(stream).length).toBeLessThan(70);
  vi.runAllTimers();
  expect(stream.root.innerHTML).toBe(streamed(text, 400).root.innerHTML);
  expect(blocksOf(stream)).toHaveLength(100);
});

test("a stretch that is behind is closed once it has been drawn, so that a page need not work on it while it is out of sight", () => {
  const drawn: (() => void)[] = [];
  class Observer {
    constructor(tell: () => void) {
      drawn.push(tell);
    }
    observe(): void {}
    disconnect(): void {}
  }
  vi.stubGlobal("ResizeObserver", Observer);
  vi.stubGlobal("requestAnimationFrame", (tell: () => void) => tell());
  const { root } = streamed("Some words.\n\n".repeat(60), 7);
  const stretches = (): unknown[] => [...root.children].map(({ className, childElementCount }) => [className, childElementCount]);
  expect(stretches()).toEqual([
    ["", 24],
    ["", 24],
    ["", 12],
  ]);
  for (const tell of drawn) {
    tell();
  }
  expect(stretches()).toEqual([
    ["aw-closed", 24],
    ["aw-closed", 24],
    ["", 12],
  ]);
});

test("each part of a long block is a stretch, and what follows stays with the last of them", () => {
  const { root } = streamed(`${"- an item with words\n".repeat(600)}\nSome words.\n\nSome words.`, 400);
  const stretches = [...root.children].map(({ className, childElementCount }) => `${className} ${childElementCount}`);
  expect(stretches.length).toBeGreaterThan(3);
  expect(new Set(stretches.slice(1, -1))).toEqual(new Set(["aw-goes-on aw-of-list 1"]));
  expect([stretches[0], stretches.at(-1)]).toEqual([" 1", "aw-goes-on aw-of-list 3"]);
});
