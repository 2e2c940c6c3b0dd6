import { afterEach, expect, test, vi } from "vitest";
import { followGround } from "../src/ground";

afterEach(() => {
  document.body.replaceChildren();
  document.body.removeAttribute("style");
  document.documentElement.removeAttribute("style");
});

/** A card in `parent`, after the frame in which it looks at the page. */
async function laid(parent: ParentNode & Node): Promise<HTMLElement> {
  const el = document.createElement("div");
  followGround(el);
  parent.append(el);
  await new Promise((resume) => requestAnimationFrame(resume));
  return el;
}

function isDark(el: HTMLElement): boolean {
  return el.classList.contains("aw-dark");
}

test.each([
  ["rgb(255, 255, 255)", false],
  ["rgb(18, 18, 18)", true],
  ["rgba(255, 255, 255, 0.9)", false],
  ["rgba(18, 18, 18, 0.8)", true],
])("a card lies on %s", async (color, dark) => {
  document.body.style.backgroundColor = color;
  expect(isDark(await laid(document.body))).toBe(dark);
});

test("the nearest ground counts, also beyond a shadow root, and one that lets through does not", async () => {
  document.body.style.backgroundColor = "white";
  const host = document.createElement("div");
  host.style.backgroundColor = "rgb(20, 20, 20)";
  document.body.append(host);
  const veil = document.createElement("div");
  veil.style.backgroundColor = "rgba(255, 255, 255, 0.1)";
  host.attachShadow({ mode: "open" }).append(veil);
  expect(isDark(await laid(veil))).toBe(true);
});

test("where there is no ground at all, the colour of the text tells", async () => {
  document.body.style.color = "rgb(230, 230, 230)";
  expect(isDark(await laid(document.body))).toBe(true);
  document.body.style.color = "rgb(20, 20, 20)";
  expect(isDark(await laid(document.body))).toBe(false);
});

test("a theme that is changed is followed, until the view is gone", async () => {
  document.body.style.backgroundColor = "white";
  const el = document.createElement("div");
  const stop = followGround(el);
  document.body.append(el);
  document.body.style.backgroundColor = "black";
  await vi.waitFor(() => expect(isDark(el)).toBe(true));
  stop();
  document.body.style.backgroundColor = "white";
  await new Promise((resume) => setTimeout(resume, 600));
  expect(isDark(el)).toBe(true);
});
