// The pause: what would run, in full, and what can be decided about it. Nothing is focused by itself, and no Enter approves:
// it must never happen by chance.

import type { Notice } from "../asked";
import { isObject } from "../decode";
import type { ToolCallBlock } from "../events";
import { ruleKey } from "../link";
import type { Decision, Rule, Verdict } from "../wire";
import { prettyJson } from "./arguments";
import { button, h, keepKeys, setBusy, setText, show } from "./dom";
import { LimitView } from "./limit";

export interface DecisionFacts {
  readonly call: ToolCallBlock;
  /** What was pressed and not yet answered. */
  readonly asked: Decision | undefined;
  /** Why the last press did not count. */
  readonly notice: Notice | undefined;
  /** No other call waits: then this is the place to end the run too. */
  readonly alone: boolean;
}

const ONCE = "this time only";
const MOST_LINES = 16;

export class DecisionView {
  readonly root = h("div", { class: "aw-decision", role: "group" });
  #arguments = h("pre", { class: "aw-arguments" });
  #form = h("textarea", { class: "aw-arguments aw-edit", spellcheck: "false", autocomplete: "off" });
  #fault = h("p", { class: "aw-fault", role: "alert" });
  #limit = new LimitView("denied");
  #approve = button("Approve", "aw-button aw-approve", () => this.#doApprove());
  #edit = button("Edit", "aw-button aw-toggle", () => this.#setEditing(!this.#editing));
  #again = h("select", { class: "aw-again", "aria-label": "Ask again next time?" });
  #deny = button("Deny", "aw-button aw-deny", () => this.#doDeny());
  #denyAndStop = button("Deny and stop", "aw-button aw-deny", () => this.#onStop(this.#reason.value.trim()));
  #reason = h("input", {
    type: "text",
    class: "aw-reason",
    maxlength: "10000",
    placeholder: "Reason (optional): the model will read it",
    "aria-label": "Reason for denying (optional): the model will read it",
  });
  #onDecide: (verdict: Verdict) => void;
  #onStop: (reason: string) => void;
  #call: ToolCallBlock | undefined;
  #rules: readonly Rule[] = [];
  #answered: string | undefined;
  #editing = false;

  constructor(onDecide: (verdict: Verdict) => void, onStop: (reason: string) => void) {
    this.#onDecide = onDecide;
    this.#onStop = onStop;
    keepKeys(this.#reason, () => this.#doDeny());
    keepKeys(this.#form);
    keepKeys(this.#again);
    this.#form.addEventListener("input", () => this.#complain(""));
    this.#again.addEventListener("change", () => this.#write());
    this.root.append(
      this.#arguments,
      this.#form,
      this.#fault,
      h("div", { class: "aw-answer" }, this.#approve, this.#edit, this.#again),
      h("div", { class: "aw-answer" }, this.#deny, this.#denyAndStop, this.#reason),
      this.#limit.root,
    );
    this.#complain("");
    show(this.#form, false);
  }

  dispose(): void {
    this.#limit.dispose();
    this.root.remove();
  }

  update({ call, asked, notice, alone }: DecisionFacts): void {
    if (JSON.stringify(call.suggested_rules) !== JSON.stringify(this.#call?.suggested_rules)) {
      this.#offer(call); // not whenever the whole is sent again, to another page: what was chosen stays
    }
    this.#call = call;
    this.root.setAttribute("aria-label", `Allow ${call.name}?`);
    this.#form.setAttribute("aria-label", `Arguments of ${call.name}, as JSON`);
    setText(this.#arguments, prettyJson(call.input));
    for (const control of [this.#approve, this.#edit, this.#again, this.#deny, this.#denyAndStop, this.#reason]) {
      setBusy(control, asked !== undefined);
    }
    this.#form.readOnly = asked !== undefined;
    this.#write(asked);
    this.#limit.update(call);
    show(this.#denyAndStop, alone);
    if (notice && notice.id !== this.#answered) {
      this.#answered = notice.id;
      this.#complain(notice.text);
    }
  }

  #write(asked?: Decision): void {
    const now = this.#again.value === "" ? "Approve" : "Always allow";
    setText(this.#approve, asked === "approve" ? "Approving…" : now);
    setText(this.#deny, asked === "deny" ? "Denying…" : "Deny");
    setText(this.#edit, this.#editing ? "Undo edit" : "Edit");
  }

  /** The rules that may be kept, narrow ones first. A narrow one is about the arguments as they stand. */
  #offer({ suggested_rules }: ToolCallBlock): void {
    this.#rules = [...suggested_rules].reverse();
    const words = ({ tool_name, rule_content }: Rule) => `always ${tool_name}${rule_content === undefined ? "" : ` with ${rule_content}`}`;
    const options = this.#rules.map((rule) => h("option", { value: ruleKey(rule) }, words(rule)));
    this.#again.replaceChildren(h("option", { value: "" }, ONCE), ...options);
    show(this.#again, options.length > 0);
  }

  #setEditing(editing: boolean): void {
    this.#editing = editing;
    if (editing) {
      this.#form.value = this.#shown();
      this.#form.rows = Math.min(MOST_LINES, this.#form.value.split("\n").length);
    }
    show(this.#form, editing);
    show(this.#arguments, !editing);
    for (const [at, rule] of this.#rules.entries()) {
      const option = this.#again.options[at + 1];
      if (option && rule.rule_content !== undefined) {
        option.disabled = editing;
        option.selected &&= !editing;
      }
    }
    this.#complain("");
    this.#write();
    if (editing) {
      this.#form.focus();
    }
  }

  #shown(): string {
    return prettyJson(this.#call?.input ?? "{}");
  }

  #complain(fault: string): void {
    setText(this.#fault, fault);
    show(this.#fault, fault !== "");
    this.#form.setAttribute("aria-invalid", String(fault !== ""));
  }

  #doApprove(): void {
    const edited = this.#editing && this.#form.value !== this.#shown();
    const fault = edited ? faultOf(this.#form.value) : "";
    this.#complain(fault);
    if (fault) {
      this.#form.focus();
      return;
    }
    const rule = this.#rules.find((one) => ruleKey(one) === this.#again.value);
    this.#onDecide({
      decision: "approve",
      reason: "",
      ...(edited && { arguments: this.#form.value }),
      ...(rule && { rule: ruleOf(rule) }),
    });
  }

  #doDeny(): void {
    this.#onDecide({ decision: "deny", reason: this.#reason.value.trim() });
  }
}

function ruleOf({ tool_name, rule_content }: Rule): Rule {
  return rule_content === undefined ? { tool_name } : { tool_name, rule_content };
}

/** What the page itself can see; whether it fits the tool, the kernel says. */
function faultOf(text: string): string {
  try {
    return isObject(JSON.parse(text)) ? "" : 'The arguments must be a JSON object, such as {"name": "value"}.';
  } catch (error) {
    return `This is not JSON yet: ${error instanceof Error ? error.message : error}`;
  }
}
