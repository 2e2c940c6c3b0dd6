// The box to type a prompt in. Enter sends, Shift+Enter begins a line.

import type { CardState, Link } from "../link";
import { button, h } from "./dom";

export class ComposerView {
  readonly root = h("div", { class: "aw-composer" });
  #box = h("textarea", { rows: "1", class: "aw-prompt-box", placeholder: "Ask something…", "aria-label": "Prompt" });
  #send: HTMLButtonElement;
  #link: Link;
  #sent: { readonly id: string; readonly text: string } | undefined;

  constructor(link: Link) {
    this.#link = link;
    this.#send = button("Send", "aw-button aw-send", () => this.#submit());
    this.#box.addEventListener("input", () => this.#refresh());
    this.#box.addEventListener("keydown", (event) => {
      event.stopPropagation(); // the host's shortcuts
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#submit();
      }
    });
    this.root.append(this.#box, this.#send);
    this.#refresh();
  }

  /** What could not be sent comes back into the box. */
  update({ notice }: CardState): void {
    if (this.#sent && notice?.id === this.#sent.id) {
      this.#box.value ||= this.#sent.text;
      this.#sent = undefined;
    }
    this.#refresh();
  }

  #submit(): void {
    const text = this.#box.value.trim();
    if (!text || this.#send.disabled) {
      return;
    }
    this.#box.value = ""; // before the answer, which may come at once and put the text back
    this.#sent = undefined;
    const id = this.#link.prompt(text);
    if (id === undefined) {
      this.#box.value = text;
    } else {
      this.#sent = { id, text };
      this.update(this.#link.state);
    }
    this.#refresh();
  }

  #refresh(): void {
    this.#send.disabled = this.#box.value.trim() === "" || this.#link.state.asked.some(({ what }) => what === "send");
    this.#box.rows = Math.min(8, this.#box.value.split("\n").length);
  }
}
