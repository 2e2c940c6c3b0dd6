// What a person pressed and the kernel has not answered yet: all views of a card show it, and none sends it twice.

import { type Decision, newId } from "./wire";

/** A press on its way. `about`: the calls, the note or the rule that it is about. */
export interface Asked {
  readonly id: string;
  readonly run_id: string;
  readonly what: "stop" | "resume" | "send" | "steer" | "withdraw" | "forget" | "answer" | Decision;
  readonly about: readonly string[];
}

/** A sentence for the person; `id` names the press that it answers, `about` what that was about. */
export interface Notice {
  readonly id: string;
  readonly text: string;
  readonly about: readonly string[];
}

const ANSWER_MS = 10_000;
const SILENT = "The kernel has not answered yet. It may be busy, or gone: restart it and run the cell again.";

export class Presses {
  asked: readonly Asked[] = [];
  notice: Notice | undefined;
  #timers = new Map<string, ReturnType<typeof setTimeout>>();
  #changed: () => void;

  constructor(changed: () => void) {
    this.#changed = changed;
  }

  /** Returns the id of a new press; `undefined` if the same is on its way. A call is decided once, whichever way. */
  ask(what: Asked["what"], run_id: string, about: readonly string[]): string | undefined {
    const isSame = (one: Asked): boolean =>
      one.run_id === run_id && (about.length === 0 ? one.what === what : one.about.some((part) => about.includes(part)));
    if (this.asked.some(isSame)) {
      return undefined; // a double click is one press
    }
    const id = newId();
    this.notice = undefined;
    this.asked = [...this.asked, { id, run_id, what, about }];
    this.#timers.set(
      id,
      setTimeout(() => this.answer(id, SILENT), ANSWER_MS),
    );
    return id;
  }

  /** The page itself answers a press that is still open: its button is released. */
  answer(id: string, text: string): void {
    if (this.asked.some((one) => one.id === id)) {
      this.say(id, text);
      this.#changed();
    }
  }

  /** Shows a sentence, and releases the button that it is about. */
  say(id: string, text: string): void {
    this.notice = { id, text, about: this.asked.find((one) => one.id === id)?.about ?? [] };
    this.release((one) => one.id === id);
  }

  release(done: (asked: Asked) => boolean): void {
    for (const { id } of this.asked.filter(done)) {
      clearTimeout(this.#timers.get(id));
      this.#timers.delete(id);
    }
    this.asked = this.asked.filter((one) => !done(one));
  }

  dispose(): void {
    this.release(() => true);
  }
}
