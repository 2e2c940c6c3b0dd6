// What a person has added and the model has not read: each can be taken back until then.

import type { Asked } from "../asked";
import type { Note } from "../wire";
import { button, h } from "./dom";

export class NotesView {
  readonly root = h("div", { class: "aw-pending" });
  #withdraw: (id: string) => void;
  #notes = new Map<string, { readonly line: HTMLElement; readonly off: HTMLButtonElement }>();

  constructor(withdraw: (id: string) => void) {
    this.#withdraw = withdraw;
  }

  update(notes: readonly Note[], asked: readonly Asked[]): void {
    for (const { id, text } of notes) {
      if (!this.#notes.has(id)) {
        this.#add(id, text);
      }
    }
    for (const [id, { line, off }] of this.#notes) {
      off.disabled = asked.some(({ what, about }) => what === "withdraw" && about.includes(id));
      if (!notes.some((note) => note.id === id)) {
        line.remove();
        this.#notes.delete(id);
      }
    }
  }

  #add(id: string, text: string): void {
    const off = button("✕", "aw-off", () => this.#withdraw(id));
    off.setAttribute("aria-label", `Withdraw: ${text}`);
    off.title = "Withdraw";
    const line = h("blockquote", { class: "aw-prompt aw-unread" }, h("span", {}, text), h("small", {}, "for the next step"), off);
    this.#notes.set(id, { line, off });
    this.root.append(line);
  }
}
