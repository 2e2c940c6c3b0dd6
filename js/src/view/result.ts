// A result's text and images; the traceback is for the person and stays folded.

import type { Part, ToolResultBlock } from "../events";
import { textOf } from "../wire";
import { dataElement } from "./data";
import { fold, h, setText, show } from "./dom";
import { withoutAnsi } from "./format";
import { OutputBox } from "./output";

export class ResultView {
  readonly root = h("div", { class: "aw-result" });
  #shown: ToolResultBlock | undefined;
  #parts: (OutputBox | string)[] = [];
  #traceback = h("pre", { class: "aw-output" });
  #trace = fold("aw-traceback", "Traceback", this.#traceback);

  constructor() {
    show(this.root, false);
  }

  update(result: ToolResultBlock | undefined): void {
    if (result === this.#shown) {
      return;
    }
    this.#shown = result;
    const parts = result ? shownParts(result) : [];
    const live = result?.state === "running";
    for (const [at, part] of parts.entries()) {
      this.#part(at, part, live && at === parts.length - 1);
    }
    while (this.#parts.length > parts.length) {
      this.#parts.pop();
      this.root.children[this.#parts.length]?.remove();
    }
    const traceback = result ? textOf(result.metadata, "traceback") : "";
    if (traceback) {
      setText(this.#traceback, withoutAnsi(traceback));
      if (this.#trace.parentNode !== this.root) {
        this.root.append(this.#trace); // once: moving it again would drop a selection in it
      }
    } else {
      this.#trace.remove();
    }
    show(this.root, this.root.childElementCount > 0);
  }

  #part(at: number, part: Part | string, live: boolean): void {
    const text = typeof part === "string" ? part : part.type === "text" ? part.text : undefined;
    const old = this.#parts[at];
    if (text !== undefined && old instanceof OutputBox) {
      old.update(text, live);
    } else if (text !== undefined) {
      const box = new OutputBox();
      box.update(text, live);
      this.#put(at, box, box.root);
    } else if (typeof part !== "string" && part.type === "data" && old !== part.id) {
      this.#put(at, part.id, h("div", { class: "aw-box" }, dataElement(part)));
    }
  }

  #put(at: number, part: OutputBox | string, element: HTMLElement): void {
    const before = this.root.children[at];
    if (this.#parts[at] !== undefined && before) {
      before.replaceWith(element);
    } else {
      this.root.insertBefore(element, before ?? null);
    }
    this.#parts[at] = part;
  }
}

/** Without what the model is told about a cut call: the person sees it in the call's state. */
function shownParts({ state, output }: ToolResultBlock): readonly (Part | string)[] {
  const parts: readonly (Part | string)[] = typeof output === "string" ? [output] : output;
  return parts.flatMap((part) => {
    const text = typeof part === "string" ? part : part.type === "text" ? part.text : undefined;
    if (text === undefined) {
      return [part];
    }
    const shown = state === "interrupted" ? text.replace(/\n?<system-reminder>[^<]*<\/system-reminder>\s*/, "") : text;
    return shown.trim() ? [shown] : [];
  });
}
