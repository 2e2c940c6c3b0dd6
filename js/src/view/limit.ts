// How long a question still waits: the end of its time and what is left of it, as long as it can be answered.

import type { ToolCallBlock } from "../events";
import { h, setText, show } from "./dom";
import { duration } from "./format";

const TICK_MS = 1_000;
const DAY = 86_400; // s

export class LimitView {
  readonly root = h("p", { class: "aw-limit" });
  #end = Number.NaN;
  #what: string;
  #timer: ReturnType<typeof setInterval> | undefined;

  /** `what` happens to a question that nobody answers. */
  constructor(what: string) {
    this.#what = what;
    show(this.root, false);
  }

  update({ answer_by }: ToolCallBlock): void {
    this.#end = Date.parse(answer_by ?? "");
    show(this.root, Number.isFinite(this.#end));
    this.#stop();
    if (Number.isFinite(this.#end)) {
      this.#timer = setInterval(() => this.#write(), TICK_MS);
      this.#write();
    }
  }

  dispose(): void {
    this.#stop();
    this.root.remove();
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #write(): void {
    const left = Math.ceil(Math.max(0, (this.#end - Date.now()) / 1000));
    const end = new Date(this.#end); // as the reader's own time of day
    const day = left < DAY ? "" : `${end.toLocaleDateString("en-CA")} `;
    const rest = left < 10 ? `${left} s` : duration(left);
    setText(this.root, `Unanswered, it is ${this.#what} in ${rest}, at ${day}${end.toTimeString().slice(0, 8)}.`);
  }
}
