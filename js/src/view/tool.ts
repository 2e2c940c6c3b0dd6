// One tool call: what was asked, how it stands, what it gave, what it printed.

import type { Asked, Notice } from "../asked";
import type { ToolCallBlock, ToolOutput, ToolResultBlock, Transcript } from "../events";
import { waitingCalls } from "../transcript";
import { textOf, type Verdict } from "../wire";
import { oneLine, prettyJson } from "./arguments";
import { ChildView, type MakeBlocks } from "./child";
import { DecisionView } from "./decision";
import { fold, h, hasFocus, setText, show } from "./dom";
import { Entry } from "./entry";
import { between, milliseconds } from "./format";
import { LimitView } from "./limit";
import { PrintedView, WAITS } from "./printed";
import { ResultView } from "./result";

export interface ToolFacts {
  readonly call: ToolCallBlock | undefined;
  readonly result: ToolResultBlock | undefined;
  readonly outputs: readonly ToolOutput[];
  /** What the sub-agent that works for this call has done. */
  readonly child: Transcript | undefined;
  /** The reply has ended: nothing waits any more. */
  readonly over: boolean;
  /** What was pressed about this call, and why the last press did not count. */
  readonly asked: Asked["what"] | undefined;
  readonly notice: Notice | undefined;
  /** No other call waits for a decision. */
  readonly alone: boolean;
  /** For the calls of its sub-agent. */
  readonly around: Around;
}

/** What goes on in the run around a call: presses on their way, the last notice, whether only one call waits for a decision. */
export interface Around {
  readonly asked: readonly Asked[];
  readonly notice: Notice | undefined;
  readonly alone: boolean;
}

/** What a person can do about a call. */
export interface CallActions {
  decide(call: ToolCallBlock, verdict: Verdict): void;
  denyAndStop(reason: string): void;
  answer(call_id: string, text: string): string | undefined;
  stop(call_id: string): void;
}

type Look = "pending" | "waiting" | "submitted" | "running" | "success" | "error" | "interrupted" | "denied";
const WORDS: Readonly<Record<Look, string>> = {
  pending: "pending",
  waiting: "waiting for you",
  submitted: "waiting for a result",
  running: "running",
  success: "ok",
  error: "error",
  interrupted: "interrupted",
  denied: "denied",
};

/** A call that was stopped before it began has a result as well, begun and ended at once: no time to be shown. */
const CLOSED_SECONDS = 0.01;

export class ToolView {
  readonly root = h("div", { class: "aw-tool" });
  #name = h("span", { class: "aw-tool-name" });
  #line = h("span", { class: "aw-tool-line" });
  #full = h("pre", { class: "aw-arguments" });
  #call: HTMLDetailsElement;
  #word = h("span", { class: "aw-tool-word" });
  #reason = h("div", { class: "aw-tool-note" });
  #printed = new PrintedView();
  #result = new ResultView();
  #original = h("p", { class: "aw-tool-note" });
  #decision: DecisionView | undefined;
  #answer: Entry | undefined;
  #limit: LimitView | undefined;
  #child: ChildView | undefined;
  #actions: CallActions;
  #makeBlocks: MakeBlocks;
  #facts: ToolFacts | undefined;

  constructor(actions: CallActions, makeBlocks: MakeBlocks) {
    this.#actions = actions;
    this.#makeBlocks = makeBlocks;
    const icon = h("span", { class: "aw-icon", "aria-hidden": "true" });
    this.#call = fold("aw-call", h("span", { class: "aw-call-head" }, icon, h("code", {}, this.#name, this.#line), this.#word), this.#full);
    this.#call.addEventListener("toggle", () => this.#writeArguments());
    this.root.append(this.#call, this.#original, this.#reason, this.#printed.root, this.#result.root);
  }

  dispose(): void {
    this.#child?.dispose();
    this.#decision?.dispose();
    this.#limit?.dispose();
  }

  update(facts: ToolFacts): void {
    if (this.#facts && isSame(this.#facts, facts)) {
      return;
    }
    this.#facts = facts;
    const { call, result } = facts;
    const look = lookOf(facts);
    const state = this.root.dataset;
    // While its sub-agent waits for a person, nothing runs.
    const isPaused = look === "running" && facts.child && waitingCalls(facts.child).length > 0;
    const waitsFor = look === "running" ? facts.outputs.find(({ name }) => name === WAITS)?.text : undefined;
    const shown = isPaused ? "waiting" : waitsFor ? "pending" : look;
    if (state["look"] !== shown) {
      state["look"] = shown;
    }
    setText(this.#name, call?.name ?? result?.name ?? "");
    this.#writeArguments();
    const seconds = between(result?.created_at, result?.finished_at);
    const ran = seconds !== undefined && look !== "denied" && (look !== "interrupted" || seconds > CLOSED_SECONDS);
    const took = ran ? ` · ${milliseconds(seconds * 1000)}` : "";
    setText(this.#word, waitsFor ? `waits ${waitsFor}` : `${WORDS[shown]}${took}`);
    this.#note(look, result);
    this.#pause(look, facts);
    this.#outside(look, facts);
    this.#printed.update(facts.outputs, result?.finished_at === undefined);
    this.#showChild(facts, look);
    // What a sub-agent said is above, as it said it: its caller got the same text.
    this.#result.update(look === "denied" || (facts.child && look !== "error") ? undefined : result);
  }

  #showChild({ call, child, over, around }: ToolFacts, look: Look): void {
    if (!child) {
      return;
    }
    if (!this.#child) {
      this.#child = new ChildView(this.#actions, this.#makeBlocks, () => this.#facts?.call && this.#actions.stop(this.#facts.call.id));
      this.#printed.root.before(this.#child.root);
    }
    const stopping = around.asked.some(({ what, about }) => what === "stop" && (about.length === 0 || about.includes(call?.id ?? "")));
    this.#child.update(child, { over: over || look !== "running", stopping, around });
  }

  #writeArguments(): void {
    const { input = "", original_input } = this.#facts?.call ?? {};
    setText(
      this.#original,
      original_input === undefined ? "" : `Changed by a person. The model had asked for (${oneLine(original_input)})`,
    );
    show(this.#original, original_input !== undefined);
    setText(this.#line, `(${oneLine(input)}${this.#facts?.call && this.#facts.call.finished_at === undefined ? "…" : ")"}`);
    if (this.#call.open) {
      setText(this.#full, prettyJson(input));
    }
  }

  #note(look: Look, result: ToolResultBlock | undefined): void {
    const notes: string[] = [];
    const reason = result ? textOf(result.metadata, "reason") : "";
    if (look === "denied") {
      notes.push(reason ? `Denied: “${reason}”` : "Denied");
    }
    if (look === "interrupted" && reason) {
      notes.push(`Stopped: “${reason}”`);
    }
    if (result?.metadata["still_running"] === true) {
      notes.push("Still running in its thread: it could not be ended.");
    }
    setText(this.#reason, notes.join(" "));
    show(this.#reason, notes.length > 0);
  }

  #pause(look: Look, { call, asked, notice, alone }: ToolFacts): void {
    if (look !== "waiting" || !call) {
      if (this.#decision && hasFocus(this.#decision.root)) {
        this.#call.querySelector("summary")?.focus({ preventScroll: true }); // else a keyboard would begin anew at the top of the page
      }
      this.#decision?.dispose();
      this.#decision = undefined;
      return;
    }
    if (!this.#decision) {
      const decide = (verdict: Verdict): void => {
        const now = this.#facts?.call;
        if (now) {
          this.#actions.decide(now, verdict);
        }
      };
      this.#decision = new DecisionView(decide, (reason) => this.#actions.denyAndStop(reason));
      this.#call.after(this.#decision.root);
    }
    this.#decision.update({ call, asked: asked === "approve" || asked === "deny" ? asked : undefined, notice, alone });
  }

  /** A call that is done elsewhere: whoever watches may give its result. */
  #outside(look: Look, { call, asked, notice }: ToolFacts): void {
    if (look !== "submitted" || !call) {
      this.#answer?.root.remove();
      this.#limit?.dispose();
      this.#answer = this.#limit = undefined;
      return;
    }
    if (!this.#answer) {
      this.#answer = new Entry((text) => this.#actions.answer(call.id, text));
      this.#limit = new LimitView("given up");
      this.#call.after(this.#answer.root, this.#limit.root);
    }
    this.#limit?.update(call);
    const words = { label: `Result of ${call.name}`, hint: "Its result: the model will read it", button: "Give result" };
    this.#answer.update(words, asked !== undefined, notice);
  }
}

function isSame(one: ToolFacts, other: ToolFacts): boolean {
  return (
    one.call === other.call &&
    one.result === other.result &&
    one.over === other.over &&
    one.asked === other.asked &&
    one.notice === other.notice &&
    one.alone === other.alone &&
    one.child === other.child &&
    (one.child === undefined || one.around === other.around) &&
    one.outputs.length === other.outputs.length &&
    one.outputs.every((output, at) => output === other.outputs[at])
  );
}

function lookOf({ call, result, over }: ToolFacts): Look {
  if (result && result.state !== "running") {
    return result.state;
  }
  if (over) {
    return "interrupted";
  }
  if (call?.state === "asking") {
    return "waiting";
  }
  if (call?.state === "submitted") {
    return "submitted";
  }
  return result ? "running" : "pending";
}
