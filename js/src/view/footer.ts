// How a run ended: the outcome in words, what it cost, and the way to go on.

import type { Usage } from "../events";
import type { RunView } from "../link";
import { type StopInfo, stopInfo } from "../wire";
import { button, h, setBusy, setText, show } from "./dom";
import { between, count, duration, milliseconds, plural } from "./format";

export class FooterView {
  readonly root = h("footer", { class: "aw-foot" });
  #error = h("div", { class: "aw-error", role: "group", "aria-label": "Error" });
  #facts = h("span", { class: "aw-facts" });
  #resume: HTMLButtonElement;

  constructor(onResume: () => void) {
    this.#resume = button("", "aw-button aw-resume", onResume);
    this.root.append(this.#error, h("div", { class: "aw-foot-row" }, this.#facts, this.#resume));
  }

  /** `last`: only the newest run of a card can go on. `asked`: the button was pressed and not yet answered. */
  update(run: RunView, last: boolean, asked: boolean): void {
    const { state } = run.status;
    const { error } = run.transcript.message;
    setText(this.#facts, facts(run).join(" · "));
    if (error) {
      this.#error.replaceChildren(h("strong", {}, FAULTS[error.type] ?? "Error"), h("span", {}, `: ${error.message}`));
    }
    show(this.#error, state === "error" && error !== undefined);
    show(this.#resume, last && ["error", "interrupted", "exceed_max_iters"].includes(state));
    setText(this.#resume, asked ? "Starting…" : state === "error" ? "Try again" : "Continue");
    setBusy(this.#resume, asked);
    show(this.root, this.#facts.textContent !== "" || !this.#resume.hidden);
  }
}

/** AgentScope's categories of errors, in words. */
const FAULTS: Readonly<Record<string, string>> = {
  authentication: "Not logged in",
  permission: "Not allowed",
  rate_limit: "Too many requests",
  invalid_request: "Refused",
  upstream: "The model's server failed",
  connection: "No answer",
  setup: "Not ready",
};

function facts(run: RunView): string[] {
  const { message, steps } = run.transcript;
  const ended = outcome(run);
  if (!ended) {
    return [];
  }
  const seconds = run.status.elapsed ?? between(message.created_at, message.finished_at);
  const called = steps > 0 ? [plural(steps, "step"), tokens(message.usage)] : [];
  const took = seconds === undefined ? [] : [duration(seconds), steps === 1 ? speed(message.usage, seconds) : ""];
  return [ended, ...called, ...took].filter((part) => part !== "");
}

function outcome({ status, transcript }: RunView): string {
  const stop = status.stop ?? stopInfo(transcript.message.metadata);
  switch (status.state) {
    case "completed":
      return "Done";
    case "interrupted":
      return stoppedBy(stop);
    case "exceed_max_iters":
      return `Ended: it used all the steps it may take (${count(transcript.steps)})`;
    case "error":
      return "Ended with an error";
    default:
      return "";
  }
}

/** `Stopped by you after 12 ms: reason`. */
function stoppedBy({ source, when, reason, stop_ms }: StopInfo): string {
  const who: Readonly<Record<string, string>> = {
    user: " by you",
    code: " from code",
    kernel: " by the kernel's ■",
    deadline: ": the deadline has passed",
    budget: ": the budget is used up",
  };
  const step = when === "step" ? " when its step had ended" : "";
  const after = stop_ms === undefined || step ? "" : ` after ${milliseconds(stop_ms)}`;
  return `Stopped${who[source] ?? ""}${step}${["deadline", "budget"].includes(source) ? "" : after}${reason ? ` (“${reason}”)` : ""}`;
}

function tokens(usage: Usage | undefined): string {
  if (!usage || (usage.unknown_calls > 0 && usage.input_tokens + usage.output_tokens === 0)) {
    return "tokens unknown";
  }
  const more = usage.unknown_calls > 0 ? "at least " : "";
  return `${more}${count(usage.input_tokens)} in · ${count(usage.output_tokens)} out`;
}

/** Of a single model call: more steps hold the time of tools and of people too. */
function speed(usage: Usage | undefined, seconds: number): string {
  const rate = usage && seconds >= 0.5 ? usage.output_tokens / seconds : 0;
  return rate >= 1 ? `${Math.round(rate)} tokens/s` : "";
}
