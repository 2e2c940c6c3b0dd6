// The pause: what would run, in full, and the two buttons. Nothing is focused by itself: Enter must never approve by chance.

import type { ToolCallBlock } from "../events";
import type { Decision } from "../wire";
import { prettyJson } from "./arguments";
import { button, h, setText } from "./dom";

export class DecisionView {
  readonly root = h("div", { class: "aw-decision", role: "group" });
  #arguments = h("pre", { class: "aw-arguments" });
  #approve = button("Approve", "aw-button aw-approve", () => this.#decide("approve"));
  #deny = button("Deny", "aw-button aw-deny", () => this.#decide("deny"));
  #reason = h("input", {
    type: "text",
    class: "aw-reason",
    maxlength: "10000",
    placeholder: "Reason (optional): the model will read it",
    "aria-label": "Reason for denying (optional): the model will read it",
  });
  #onDecide: (decision: Decision, reason: string) => void;

  constructor(onDecide: (decision: Decision, reason: string) => void) {
    this.#onDecide = onDecide;
    this.#reason.addEventListener("keydown", (event) => {
      event.stopPropagation(); // the host's shortcuts
      if (event.key === "Enter" && !event.isComposing) {
        event.preventDefault();
        this.#decide("deny");
      }
    });
    this.root.append(this.#arguments, h("div", { class: "aw-answer" }, this.#approve, this.#deny, this.#reason));
  }

  /** `asked` is the decision that was pressed and not yet answered. */
  update(call: ToolCallBlock, asked: Decision | undefined): void {
    setText(this.#arguments, prettyJson(call.input));
    this.root.setAttribute("aria-label", `Allow ${call.name}?`);
    this.#approve.disabled = this.#deny.disabled = this.#reason.disabled = asked !== undefined;
    setText(this.#approve, asked === "approve" ? "Approving…" : "Approve");
    setText(this.#deny, asked === "deny" ? "Denying…" : "Deny");
  }

  #decide(decision: Decision): void {
    if (!this.#deny.disabled) {
      this.#onDecide(decision, decision === "deny" ? this.#reason.value.trim() : "");
    }
  }
}
