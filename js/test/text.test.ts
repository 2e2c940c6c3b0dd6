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
  const parts = Array.from({ length: 12 }, (_, number) => `Paragraph **${number}** with some words.\n\n`);
  let text = "";
  const touched: MutationRecord[] = [];
  const seen = new Map<number, Element>();
  for (const [number, part] of parts.entries()) {
    for (const word of part.split(/(?<= )/)) {
      text += word;
      stream.update(text, false);
    }
    const finished = stream.root.children[number - 1];
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
    expect(stream.root.children[number]).toBe(element);
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
  vi.useRealTimers();
});

test("a large open block is drawn less often, and not forgotten", () => {
  vi.useFakeTimers();
  const stream = new MarkdownStream();
  const item = "- an item of a long list with some words\n";
  stream.update(item.repeat(150), false);
  stream.update(item.repeat(151), false);
  expect(stream.root.querySelectorAll("li")).toHaveLength(150);
  vi.advanceTimersByTime(1_100);
  expect(stream.root.querySelectorAll("li")).toHaveLength(151);
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
