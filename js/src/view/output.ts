// Long text in a monospace box: folded it holds a few lines only, so that a result of 1 MB costs the page nothing.

import { button, h, patchText, setText, show } from "./dom";
import { count, withoutAnsi } from "./format";

const FOLDED_LINES = 12;
const FOLDED_CHARACTERS = 2_000;

export class OutputBox {
  readonly root = h("div", { class: "aw-box" });
  #text = document.createTextNode("");
  #pre = h("pre", { class: "aw-output" }, this.#text);
  #more = button("", "aw-more", () => this.#toggle());
  #whole = "";
  #live = false;
  #unfolded = false;

  constructor() {
    show(this.#more, false);
    this.root.append(this.#pre, this.#more);
  }

  /** While text still comes (`live`), the fold shows its end, as a terminal does; afterwards its beginning. */
  update(text: string, live: boolean): void {
    if (text === this.#whole && live === this.#live) {
      return;
    }
    this.#whole = text;
    this.#live = live;
    this.#write();
  }

  #toggle(): void {
    this.#unfolded = !this.#unfolded;
    this.#write();
  }

  #write(): void {
    const shown = this.#unfolded ? this.#whole : part(this.#whole, this.#live);
    const folded = shown.length < this.#whole.length;
    patchText(this.#text, withoutAnsi(shown));
    this.#pre.classList.toggle("aw-clipped-above", folded && this.#live);
    this.#pre.classList.toggle("aw-clipped-below", folded && !this.#live);
    show(this.#more, folded || this.#unfolded);
    if (folded || this.#unfolded) {
      setText(
        this.#more,
        this.#unfolded ? "Show less" : `Show all ${count(lines(this.#whole))} lines, ${count(this.#whole.length)} characters`,
      );
    }
  }
}

function part(text: string, live: boolean): string {
  if (text.length <= FOLDED_CHARACTERS && lines(text) <= FOLDED_LINES + 3) {
    return text; // a fold that hides two lines is worse than two lines
  }
  if (live) {
    return text.slice(-FOLDED_CHARACTERS).split("\n").slice(-FOLDED_LINES).join("\n");
  }
  return text.slice(0, FOLDED_CHARACTERS).split("\n").slice(0, FOLDED_LINES).join("\n");
}

function lines(text: string): number {
  let number = 1;
  for (let at = text.indexOf("\n"); at >= 0 && at < text.length - 1; at = text.indexOf("\n", at + 1)) {
    number += 1;
  }
  return number;
}
