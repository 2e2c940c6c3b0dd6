// One tool call: what was asked, how it stands, what it gave, what it printed.

import type { Asked } from "../asked";
import type { ToolCallBlock, ToolOutput, ToolResultBlock, Transcript } from "../events";
import { type Decision, textOf } from "../wire";
import { oneLine, prettyJson } from "./arguments";
import { ChildView, type MakeBlocks } from "./child";
import { DecisionView } from "./decision";
import { fold, h, setText, show } from "./dom";
import { between, milliseconds } from "./format";
import { PrintedView } from "./printed";
import { ResultView } from "./result";

export interface ToolFacts {
  readonly call: ToolCallBlock | undefined;
  readonly result: ToolResultBlock | undefined;
  readonly outputs: readonly ToolOutput[];
  /** What the sub-agent that works for this call has done. */
  readonly child: Transcript | undefined;
  /** The reply has ended: nothing waits any more. */
  readonly over: boolean;
  /** What was pressed in this run and is not answered yet. */
  readonly asked: readonly Asked[];
}

/** What a person may do about a call. */
export interface ToolActions {
  readonly decide: (call: ToolCallBlock, decision: Decision, reason: string) => void;
  readonly stop: (call_id: string) => void;
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
  #decision: DecisionView | undefined;
  #child: ChildView | undefined;
  #actions: ToolActions;
  #makeBlocks: MakeBlocks;
  #facts: ToolFacts | undefined;

  constructor(actions: ToolActions, makeBlocks: MakeBlocks) {
    this.#actions = actions;
    this.#makeBlocks = makeBlocks;
    const icon = h("span", { class: "aw-icon", "aria-hidden": "true" });
    this.#call = fold("aw-call", h("span", { class: "aw-call-head" }, icon, h("code", {}, this.#name, this.#line), this.#word), this.#full);
    this.#call.addEventListener("toggle", () => this.#writeArguments());
    this.root.append(this.#call, this.#reason, this.#printed.root, this.#result.root);
  }

  dispose(): void {
    this.#child?.dispose();
  }

  update(facts: ToolFacts): void {
    if (this.#facts && isSame(this.#facts, facts)) {
      return;
    }
    this.#facts = facts;
    const { call, result } = facts;
    const look = lookOf(facts);
    const state = this.root.dataset;
    if (state["look"] !== look) {
      state["look"] = look;
    }
    setText(this.#name, call?.name ?? result?.name ?? "");
    this.#writeArguments();
    const seconds = between(result?.created_at, result?.finished_at);
    const took = seconds === undefined || look === "denied" ? "" : ` · ${milliseconds(seconds * 1000)}`;
    setText(this.#word, `${WORDS[look]}${took}`);
    this.#note(look, call, result);
    this.#pause(look, facts);
    this.#printed.update(facts.outputs, result?.finished_at === undefined);
    this.#showChild(facts, look);
    // What a sub-agent said is above, as it said it: its caller got the same text.
    this.#result.update(look === "denied" || (facts.child && look !== "error") ? undefined : result);
  }

  #showChild({ call, child, over, asked }: ToolFacts, look: Look): void {
    if (!child) {
      return;
    }
    if (!this.#child) {
      this.#child = new ChildView(this.#actions, this.#makeBlocks, () => this.#facts?.call && this.#actions.stop(this.#facts.call.id));
      this.#printed.root.before(this.#child.root);
    }
    const stopping = asked.some(({ what, call_id }) => what === "stop" && (call_id === "" || call_id === call?.id));
    this.#child.update(child, { over: over || look !== "running", stopping, asked });
  }

  #writeArguments(): void {
    const input = this.#facts?.call?.input ?? "";
    setText(this.#line, `(${oneLine(input)}${this.#facts?.call && this.#facts.call.finished_at === undefined ? "…" : ")"}`);
    if (this.#call.open) {
      setText(this.#full, prettyJson(input));
    }
  }

  #note(look: Look, call: ToolCallBlock | undefined, result: ToolResultBlock | undefined): void {
    const notes: string[] = [];
    const reason = result ? textOf(result.metadata, "reason") : "";
    if (look === "denied") {
      notes.push(reason ? `Denied: “${reason}”` : "Denied");
    }
    if (look === "submitted") {
      notes.push(`Waits for a result from outside: run.answer(${JSON.stringify(call?.id)}, …)`);
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

  #pause(look: Look, { call, asked }: ToolFacts): void {
    if (look !== "waiting" || !call) {
      this.#decision?.root.remove();
      this.#decision = undefined;
      return;
    }
    if (!this.#decision) {
      this.#decision = new DecisionView((decision, reason) => {
        const now = this.#facts?.call;
        if (now) {
          this.#actions.decide(now, decision, reason);
        }
      });
      this.#call.after(this.#decision.root);
    }
    this.#decision.update(call, decisionOn(call.id, asked));
  }
}

function isSame(one: ToolFacts, other: ToolFacts): boolean {
  return (
    one.call === other.call &&
    one.result === other.result &&
    one.child === other.child &&
    one.over === other.over &&
    one.asked.length === other.asked.length &&
    one.asked.every((press, at) => press === other.asked[at]) &&
    one.outputs.length === other.outputs.length &&
    one.outputs.every((output, at) => output === other.outputs[at])
  );
}

function decisionOn(call_id: string, asked: readonly Asked[]): Decision | undefined {
  const what = asked.find((one) => one.call_id === call_id)?.what;
  return what === "approve" || what === "deny" ? what : undefined;
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
