// Images and files of a block, a result or a display: shown when they are in the page already, named when they are not.

import { asObject } from "../decode";
import type { DataBlock, JsonObject } from "../events";
import { addressLink, lex, renderBlock, sanitise } from "../markdown";
import { textOf } from "../wire";
import { h } from "./dom";
import { size, withoutAnsi } from "./format";

const IMAGE = /^image\/(?:png|jpeg|gif|webp|bmp|svg\+xml)$/;
const BASE64 = /^[A-Za-z0-9+/=\s]*$/;

/** An image, a sound or a file as an element. */
export function dataElement(block: DataBlock): Node {
  const { source } = block;
  const label = block.name ?? (source.media_type || "file");
  if (source.type === "url") {
    return h("p", { class: "aw-file" }, addressLink(source.url, label));
  }
  return (
    imageElement(source.media_type, source.data, label) ?? h("p", { class: "aw-file" }, `${label} (${size(source.data.length)}, base64)`)
  );
}

/** What a tool displayed: the richest form that is safe. */
export function displayElement(data: JsonObject, metadata: JsonObject = {}): Node {
  return htmlElement(data) ?? pictureOf(data, metadata) ?? markdownElement(data) ?? textElement(data);
}

/** HTML, unless nothing of it may be shown: some is a script that draws. */
function htmlElement(data: JsonObject): Node | undefined {
  const html = textOf(data, "text/html");
  const content = html ? sanitise(html) : undefined;
  const isSeen = content && (content.textContent?.trim() || content.querySelector("img, hr, table"));
  return isSeen ? h("div", { class: "aw-html" }, content) : undefined;
}

/** A drawing or an image, as large as its maker says. Dark lines on nothing get a light ground, in a dark page too. */
function pictureOf(data: JsonObject, metadata: JsonObject): HTMLElement | undefined {
  const svg = textOf(data, "image/svg+xml");
  if (svg) {
    return picture(`data:image/svg+xml,${encodeURIComponent(svg)}`, "displayed drawing"); // in an <img> no script runs
  }
  for (const type of ["image/png", "image/jpeg", "image/gif", "image/webp"]) {
    const image = imageElement(type, textOf(data, type), "displayed image");
    if (image) {
      const about = asObject(metadata[type] ?? {});
      for (const side of ["width", "height"]) {
        if (typeof about[side] === "number") {
          image.setAttribute(side, String(about[side]));
        }
      }
      const ground = metadata["needs_background"] ?? about["needs_background"];
      image.classList.toggle("aw-on-light", ground === "light");
      image.classList.toggle("aw-on-dark", ground === "dark");
      return image;
    }
  }
  return;
}

function markdownElement(data: JsonObject): Node | undefined {
  const markdown = textOf(data, "text/markdown");
  const blocks = lex(markdown, {}).map((token) => h("div", {}, renderBlock(token, true)));
  return markdown ? h("div", { class: "aw-md" }, h("div", {}, ...blocks)) : undefined;
}

function textElement(data: JsonObject): Node {
  const text = textOf(data, "text/latex") || withoutAnsi(textOf(data, "text/plain"));
  return h("pre", { class: "aw-output" }, text || `(${Object.keys(data).join(", ") || "nothing"})`);
}

function imageElement(mediaType: string, base64: string, label: string): HTMLElement | undefined {
  if (!base64 || !IMAGE.test(mediaType) || !BASE64.test(base64)) {
    return undefined;
  }
  return picture(`data:${mediaType};base64,${base64.replace(/\s/g, "")}`, label);
}

function picture(address: string, label: string): HTMLElement {
  return h("img", { class: "aw-image", src: address, alt: label });
}
