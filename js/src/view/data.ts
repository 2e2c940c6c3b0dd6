// Images and files of a block, a result or a display: shown when they are in the page already, named when they are not.

import type { DataBlock, JsonObject } from "../events";
import { addressLink, sanitise } from "../markdown";
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
export function displayElement(data: JsonObject): Node {
  const html = textOf(data, "text/html");
  if (html) {
    return h("div", { class: "aw-html" }, sanitise(html));
  }
  const svg = textOf(data, "image/svg+xml");
  if (svg) {
    return picture(`data:image/svg+xml,${encodeURIComponent(svg)}`, "displayed drawing"); // in an <img> no script runs
  }
  for (const type of ["image/png", "image/jpeg", "image/gif", "image/webp"]) {
    const image = imageElement(type, textOf(data, type), "displayed image");
    if (image) {
      return image;
    }
  }
  const text = textOf(data, "text/plain") || textOf(data, "text/markdown");
  return h("pre", { class: "aw-output" }, withoutAnsi(text) || `(${Object.keys(data).join(", ") || "nothing"})`);
}

function imageElement(mediaType: string, base64: string, label: string): Node | undefined {
  if (!base64 || !IMAGE.test(mediaType) || !BASE64.test(base64)) {
    return undefined;
  }
  return picture(`data:${mediaType};base64,${base64.replace(/\s/g, "")}`, label);
}

function picture(address: string, label: string): HTMLElement {
  return h("img", { class: "aw-image", src: address, alt: label });
}
