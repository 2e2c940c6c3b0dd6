// A sub-agent inside the call that it works for: who, how it stands, Stop for it alone, and what it does.

import type { Transcript } from "../events";
import { waitingCalls } from "../transcript";
import { button, fold, h, setBusy, setText, show } from "./dom";
import { plural } from "./format";
import type { Around, CallActions } from "./tool";

interface Blocks {
  readonly root: HTMLElement;
  update(transcript: Transcript, over: boolean, around: Around): void;
  dispose(): void;
}

/** Makes the view of a transcript's blocks; handed in, because those blocks may hold a sub-agent again. */
export type MakeBlocks = (actions: CallActions) => Blocks;

interface Facts {
  /** Its call has a result, or the run has ended: nothing in it waits any more. */
  readonly over: boolean;
  readonly stopping: boolean;
  readonly around: Around;
}

export class ChildView {
  readonly root = h("div", { class: "aw-child" });
  #name = h("span", { class: "aw-child-name" });
  #model = h("span", { class: "aw-model" });
  #word = h("span", { class: "aw-child-word" });
  #stop: HTMLButtonElement;
  #blocks: Blocks;
  #notices = h("div", { class: "aw-notices" });

  constructor(actions: CallActions, makeBlocks: MakeBlocks, onStop: () => void) {
    this.#blocks = makeBlocks(actions);
    this.#stop = button("Stop", "aw-button aw-child-stop", onStop);
    this.#stop.title = "Stop this agent alone; the one that called it goes on";
    const head = h("span", { class: "aw-child-head" }, this.#name, this.#model, this.#word);
    const details = fold("aw-child-fold", head, this.#blocks.root, this.#notices);
    details.open = true;
    this.root.append(details, this.#stop); // a button has no place in a summary
  }

  dispose(): void {
    this.#blocks.dispose();
  }

  update(child: Transcript, { over, stopping, around }: Facts): void {
    const { message } = child;
    const ended = over || message.finished_reason !== undefined;
    setText(this.#name, message.name);
    setText(this.#model, child.model);
    const word = wordOf(child, ended, stopping);
    this.root.dataset["state"] = word;
    setText(this.#word, `${word} · ${plural(child.steps, "step")}`);
    setText(this.#stop, stopping ? "Stopping…" : "Stop");
    this.#stop.setAttribute("aria-label", `Stop ${message.name}`);
    setBusy(this.#stop, stopping);
    show(this.#stop, !ended);
    this.#blocks.update(child, ended, around);
    if (this.#notices.childElementCount !== child.notices.length) {
      this.#notices.replaceChildren(...child.notices.map((text) => h("p", {}, text)));
    }
  }
}

function wordOf(child: Transcript, ended: boolean, stopping: boolean): string {
  switch (child.message.finished_reason) {
    case "completed":
      return "done";
    case "interrupted":
      return "stopped";
    case "exceed_max_iters":
      return "out of steps";
    case "error":
      return "failed";
    default:
      if (ended) {
        return "stopped";
      }
      return stopping ? "stopping" : waitingCalls(child).length > 0 ? "waiting for you" : "running";
  }
}
