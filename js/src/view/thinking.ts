// What a model thought: folded, with its time; live text only while somebody looks.

import type { ThinkingBlock } from "../events";
import { fold, h, patchText, setText } from "./dom";
import { between, duration } from "./format";

export class ThinkingView {
  readonly root: HTMLDetailsElement;
  #label = h("span", {}, "Thinking…");
  #text = document.createTextNode("");
  #shown: ThinkingBlock | undefined;

  constructor() {
    this.root = fold("aw-thinking", this.#label, h("div", { class: "aw-thought" }, this.#text));
    this.root.addEventListener("toggle", () => this.#write());
  }

  update(block: ThinkingBlock): void {
    this.#shown = block;
    const seconds = between(block.created_at, block.finished_at);
    this.root.classList.toggle("aw-live", block.finished_at === undefined);
    setText(
      this.#label,
      block.finished_at === undefined ? "Thinking…" : seconds === undefined ? "Thought" : `Thought for ${duration(seconds)}`,
    );
    this.#write();
  }

  /** A folded block keeps its text out of the page: nobody pays for what nobody sees. */
  #write(): void {
    if (this.root.open && this.#shown) {
      patchText(this.#text, this.#shown.thinking.trim());
    }
  }
}
