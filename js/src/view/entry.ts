// A box to type in, and its button. Enter sends, Shift+Enter begins a line; what could not be sent comes back into the box.

import type { Notice } from "../asked";
import { button, h, keepKeys, setText } from "./dom";

const MOST_LINES = 8;

export class Entry {
  readonly root = h("div", { class: "aw-entry" });
  readonly box = h("textarea", { rows: "1" });
  #button: HTMLButtonElement;
  #send: (text: string) => string | undefined;
  #sent: { readonly id: string; readonly text: string } | undefined;
  #blocked = false;

  /** `send` returns the id of the press; `undefined` when the same is on its way. */
  constructor(send: (text: string) => string | undefined) {
    this.#send = send;
    this.#button = button("", "aw-button aw-send", () => this.#submit());
    this.box.addEventListener("input", () => this.#refresh());
    keepKeys(this.box, () => this.#submit());
    this.root.append(this.box, this.#button);
  }

  /** `blocked`: nothing can be sent now. */
  update(
    words: { readonly label: string; readonly hint: string; readonly button: string },
    blocked: boolean,
    notice: Notice | undefined,
  ): void {
    if (this.box.placeholder !== words.hint) {
      this.box.placeholder = words.hint;
    }
    this.box.setAttribute("aria-label", words.label);
    setText(this.#button, words.button);
    this.#blocked = blocked;
    if (this.#sent && notice?.id === this.#sent.id) {
      this.putBack(this.#sent.text);
      this.#sent = undefined;
    }
    this.#refresh();
  }

  get text(): string {
    return this.box.value.trim();
  }

  /** What was not sent; what the person has begun to type meanwhile stays. */
  putBack(text: string): void {
    this.box.value ||= text;
    this.#refresh();
  }

  #submit(): void {
    const { text } = this;
    if (text === "" || this.#blocked) {
      return;
    }
    const { value } = this.box;
    this.box.value = ""; // before the answer, which may come at once and put the text back
    this.#sent = undefined;
    const id = this.#send(text);
    if (id === undefined) {
      this.box.value = value;
    } else {
      this.#sent = { id, text };
    }
    this.#refresh();
  }

  #refresh(): void {
    this.#button.disabled = this.#blocked || this.text === "";
    this.box.rows = Math.min(MOST_LINES, this.box.value.split("\n").length);
  }
}
