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
const SILENT = "The kernel has not answered yet. If it is busy, this still counts when it comes to it, once; it may also be gone.";

/** A press that the kernel has not answered in time: its button is released, and it may still be carried out. */
interface Late {
  readonly press: Asked;
  readonly command: string;
}

export class Presses {
  asked: readonly Asked[] = [];
  notice: Notice | undefined;
  #timers = new Map<string, ReturnType<typeof setTimeout>>();
  #late: Late[] = [];
  #changed: () => void;

  constructor(changed: () => void) {
    this.#changed = changed;
  }

  /** Whether something was pressed that the kernel has not answered. */
  get areOpen(): boolean {
    return this.asked.length + this.#late.length > 0;
  }

  /**
   * Returns the id of a new press; `undefined` if the same is on its way. A call is decided once, whichever way. One that is
   * pressed again because no answer came keeps its id, for the kernel carries out an id once.
   */
  ask(what: Asked["what"], run_id: string, about: readonly string[], command = ""): string | undefined {
    const isSame = (one: Asked): boolean =>
      one.run_id === run_id && (about.length === 0 ? one.what === what : one.about.some((part) => about.includes(part)));
    if (this.asked.some(isSame)) {
      return undefined; // a double click is one press
    }
    const again = this.#late.find((late) => late.command === command && late.press.run_id === run_id);
    const id = again?.press.id ?? newId();
    const press: Asked = { id, run_id, what, about };
    this.#late = this.#late.filter((late) => late !== again);
    this.notice = undefined;
    this.asked = [...this.asked, press];
    this.#timers.set(
      id,
      setTimeout(() => {
        this.answer(id, SILENT);
        this.#late.push({ press, command });
      }, ANSWER_MS),
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
    const about = this.asked.find((one) => one.id === id)?.about ?? [];
    this.release((one) => one.id === id);
    this.notice = { id, text, about };
  }

  release(done: (asked: Asked) => boolean): void {
    for (const { id } of this.asked.filter(done)) {
      clearTimeout(this.#timers.get(id));
      this.#timers.delete(id);
    }
    this.asked = this.asked.filter((one) => !done(one));
    const answered = this.#late.filter(({ press }) => done(press)).map(({ press }) => press.id);
    this.#late = this.#late.filter(({ press }) => !answered.includes(press.id));
    if (answered.includes(this.notice?.id ?? "")) {
      this.notice = undefined; // that it was not answered is true no more
    }
  }

  dispose(): void {
    this.release(() => true);
  }
}
