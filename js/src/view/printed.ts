// What a tool printed and displayed while it ran: for the person, the model does not see it.

import type { ToolOutput } from "../events";
import { displayElement } from "./data";
import { h, show } from "./dom";
import { OutputBox } from "./output";

/** The name of an output that says what its call waits for. */
export const WAITS = "waits";

export class PrintedView {
  readonly root = h("div", { class: "aw-printed" }, h("div", { class: "aw-label" }, "printed"));
  #boxes: (OutputBox | undefined)[] = [];
  #shown: readonly ToolOutput[] = [];
  #live = true;

  constructor() {
    show(this.root, false);
  }

  update(all: readonly ToolOutput[], live: boolean): void {
    const outputs = all.filter(({ name }) => name !== WAITS);
    for (const [at, output] of outputs.entries()) {
      if (this.#shown[at] !== output || (live !== this.#live && !output.data)) {
        this.#one(at, output, live);
      }
    }
    while (this.root.children.length > outputs.length + 1) {
      this.root.lastElementChild?.remove();
      this.#boxes.length = outputs.length;
    }
    this.#shown = outputs;
    this.#live = live;
    show(this.root, outputs.length > 0);
  }

  #one(at: number, output: ToolOutput, live: boolean): void {
    const box = this.#boxes[at];
    if (box && !output.data) {
      box.update(output.text, live);
      return;
    }
    const fresh = output.data ? undefined : new OutputBox();
    fresh?.update(output.text, live);
    const element = fresh?.root ?? h("div", { class: "aw-box" }, displayElement(output.data ?? {}, output.metadata));
    element.dataset["stream"] = output.name;
    const old = this.root.children[at + 1];
    if (old) {
      old.replaceWith(element);
    } else {
      this.root.append(element);
    }
    this.#boxes[at] = fresh;
  }
}
