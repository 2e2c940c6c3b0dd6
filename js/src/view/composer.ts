// The box at the foot of a card: while a run goes on it steers that run, else it asks the next question.
//
// A card that began with a prompt shows it while there is something to steer, or something unsent to save.

import { ENDED } from "../happened";
import type { CardState, Link, RunView } from "../link";
import { h, show } from "./dom";
import { Entry } from "./entry";

const ASK = { label: "Prompt", hint: "Ask something…", button: "Send" };
const STEER = { label: "Add something for the next step", hint: "Add something for the next step…", button: "Steer" };

export class ComposerView {
  readonly root = h("div", { class: "aw-composer" });
  #entry: Entry;
  #always: boolean;
  #steered: RunView | undefined;
  #returned = new Set<string>();
  #hasSeen = false;

  /** `always`: the card has no prompt of its own. */
  constructor(link: Link, always: boolean) {
    this.#always = always;
    this.#entry = new Entry((text) => (this.#steered ? link.steer(this.#steered.run_id, text) : link.prompt(text)));
    this.root.append(this.#entry.root);
  }

  /** Gives whether the box is there only for now. */
  update({ asked, notice, gone }: CardState, run: RunView | undefined): boolean {
    const goesOn = run !== undefined && ["running", "stopping", "paused"].includes(run.status.state);
    this.#steered = goesOn && run.status.steerable ? run : undefined;
    this.#takeBack(run);
    const blocked = this.#steered ? run?.status.state === "stopping" : asked.some(({ what }) => what === "send");
    this.#entry.update(this.#steered ? STEER : ASK, blocked, notice);
    const typing = this.root.contains(this.root.ownerDocument.activeElement);
    const forNow = this.#steered !== undefined || this.#entry.text !== "" || (typing && !this.root.hidden);
    show(this.root, gone === "" ? this.#always || forNow : this.#entry.text !== ""); // what was typed can still be copied
    return !this.#always && forNow;
  }

  /** What the model had not read when its run ended. Only of a run that ended under this view: the rest is history. */
  #takeBack(run: RunView | undefined): void {
    const notes = run?.status.steering ?? [];
    const isHistory = !this.#hasSeen;
    this.#hasSeen = true;
    if (run && ENDED.includes(run.status.state)) {
      const unread = notes.filter(({ id }) => !this.#returned.has(id));
      if (unread.length > 0 && !isHistory) {
        this.#entry.putBack(unread.map(({ text }) => text).join("\n"));
      }
      for (const { id } of unread) {
        this.#returned.add(id);
      }
    }
  }
}
