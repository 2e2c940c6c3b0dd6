// What runs without asking, in a line, each with the way to take it back.

import { type CardState, type Link, ruleKey } from "../link";
import type { Rule } from "../wire";
import { button, h, show } from "./dom";

export class RulesView {
  readonly root = h("div", { class: "aw-rules", role: "group", "aria-label": "Allowed without asking" });
  #link: Link;
  #shown: readonly Rule[] = [];
  #offs = new Map<string, HTMLButtonElement>();

  constructor(link: Link) {
    this.#link = link;
  }

  update({ rules, asked }: CardState): void {
    if (rules !== this.#shown) {
      this.#shown = rules;
      this.#draw();
    }
    for (const [key, off] of this.#offs) {
      off.disabled = asked.some(({ what, about }) => what === "forget" && about.includes(key));
    }
    show(this.root, rules.length > 0);
  }

  #draw(): void {
    this.#offs.clear();
    const chips = this.#shown.map((rule) => {
      const key = ruleKey(rule);
      const off = button("✕", "aw-off", () => this.#link.forget(rule));
      off.setAttribute("aria-label", `Ask again about ${key}`);
      off.title = "Ask again";
      this.#offs.set(key, off);
      return h("span", { class: "aw-rule" }, h("code", {}, key), off);
    });
    this.root.replaceChildren("Allowed without asking:", ...chips);
  }
}
