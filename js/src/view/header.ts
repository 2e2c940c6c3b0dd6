// The head of a card: who, with which model, how it stands, for how long, and Stop.

import type { Asked } from "../asked";
import { ENDED } from "../happened";
import type { RunView } from "../link";
import { waitingCalls } from "../transcript";
import { button, h, setBusy, setText } from "./dom";
import { duration, plural } from "./format";

const STOPPABLE: readonly string[] = ["queued", "running", "paused"];

/** What is said of a run that was going on when its kernel went. */
const CUT_OFF = "kernel gone";

/** How a card stands: a word, and the look of its chip. */
export function standing(run: RunView | undefined, stopping: boolean, gone: boolean): { readonly look: string; readonly word: string } {
  if (gone && !(run && ENDED.includes(run.status.state))) {
    return { look: "gone", word: CUT_OFF };
  }
  if (!run) {
    return { look: "idle", word: "ready" };
  }
  return { look: stopping ? "stopping" : run.status.state, word: stateWord(run, stopping) };
}

/** The state of a run as a person reads it. */
function stateWord({ status, transcript }: RunView, stopping: boolean): string {
  if (stopping || status.state === "stopping") {
    return "stopping";
  }
  switch (status.state) {
    case "queued":
      return status.ahead ? `queued: ${plural(status.ahead, "run")} before it` : "queued";
    case "paused":
      return waitingCalls(transcript).some(({ state }) => state === "submitted") ? "waiting for a result" : "waiting for you";
    case "completed":
      return "done";
    case "interrupted":
      return "stopped";
    case "exceed_max_iters":
      return "out of steps";
    default:
      return status.state;
  }
}

export function isStoppable({ status }: RunView): boolean {
  return STOPPABLE.includes(status.state);
}

export function isStopping(run: RunView, asked: readonly Asked[]): boolean {
  return (
    run.status.state === "stopping" ||
    asked.some(({ what, run_id, about }) => what === "stop" && about.length === 0 && run_id === run.run_id)
  );
}

export class HeaderView {
  readonly root = h("header", { class: "aw-head" });
  #name: HTMLElement;
  #model = h("span", { class: "aw-model" });
  #chip = h("span", { class: "aw-chip" });
  #time = h("span", { class: "aw-time" });
  #stop: HTMLButtonElement;
  #run: RunView | undefined;
  #clock: ReturnType<typeof setInterval> | undefined;

  constructor(name: string, onStop: () => void) {
    this.#name = h("span", { class: "aw-name" }, name || "assistant");
    this.#stop = button("Stop", "aw-button aw-stop", onStop);
    this.#stop.title = "Stop this run (Esc)";
    this.root.append(this.#name, this.#model, this.#chip, this.#time, h("span", { class: "aw-gap" }), this.#stop);
  }

  update(run: RunView | undefined, asked: readonly Asked[], gone: boolean): void {
    this.#run = run;
    const stopping = run !== undefined && !gone && isStopping(run, asked);
    const { look, word } = standing(run, stopping, gone);
    if (run) {
      const { message, model } = run.transcript;
      if (message.name) {
        setText(this.#name, message.name);
      }
      setText(this.#model, model);
    }
    this.#chip.dataset["state"] = look;
    setText(this.#chip, word);
    // its place is kept while it is not there: nothing may jump under the pointer
    this.#stop.style.visibility = run && !gone && (stopping || isStoppable(run)) ? "visible" : "hidden";
    setBusy(this.#stop, stopping);
    setText(this.#stop, stopping ? "Stopping…" : "Stop");
    if (word !== CUT_OFF) {
      this.#tick(); // a run that was cut off keeps the time that it had
    }
    this.#setClock(!gone && run !== undefined && ["running", "stopping"].includes(run.status.state));
  }

  dispose(): void {
    this.#setClock(false);
  }

  #setClock(on: boolean): void {
    if (on && this.#clock === undefined) {
      this.#clock = setInterval(() => this.#tick(), 200);
    } else if (!on && this.#clock !== undefined) {
      clearInterval(this.#clock);
      this.#clock = undefined;
    }
  }

  /** The kernel says how long it took when it sent; the page's own clock goes on from there. */
  #tick(): void {
    const run = this.#run;
    const base = run?.status.elapsed;
    if (!run || (base === undefined && run.status.state !== "running")) {
      setText(this.#time, "");
      return;
    }
    const goesOn = ["running", "stopping"].includes(run.status.state);
    const seconds = (base ?? 0) + (goesOn ? (performance.now() - run.since) / 1000 : 0);
    setText(this.#time, duration(seconds));
  }
}
