// One run: the prompt, its blocks in order, the notices, the footer. Changes only what changed.

import type { Asked, Notice } from "../asked";
import type { ToolCallBlock, Transcript } from "../events";
import { ENDED } from "../happened";
import type { Link, RunView } from "../link";
import { waitingCalls } from "../transcript";
import { BlocksView } from "./blocks";
import { button, h, setBusy, setText, show } from "./dom";
import { FooterView } from "./footer";
import { count } from "./format";
import { NotesView } from "./notes";
import type { CallActions } from "./tool";

export class RunElement {
  readonly root = h("article", { class: "aw-run" });
  #prompt = h("blockquote", { class: "aw-prompt" });
  #cut = h("p", { class: "aw-cut" });
  #note = h("p", { class: "aw-note" });
  #notices = h("div", { class: "aw-notices" });
  #busy = h("div", { class: "aw-busy", "aria-hidden": "true" }, h("i"), h("i"), h("i"));
  #all = new TogetherView((decision, stop) => this.#link.decideAll(this.#run_id, this.#waiting(), decision, "", stop));
  #pending: NotesView;
  #footer: FooterView;
  #seen: RunView | undefined;
  #seenAsked = "";
  #seenNotice: Notice | undefined;
  #link: Link;
  #run_id: string;

  constructor(link: Link, run_id: string) {
    this.#link = link;
    this.#run_id = run_id;
    this.#blocks = new BlocksView(this.#actions, link.remoteImages);
    this.#footer = new FooterView(() => link.resume(run_id));
    this.#pending = new NotesView((id) => link.withdraw(run_id, id));
    this.root.append(this.#prompt, this.#note, this.#cut, this.#blocks.root, this.#all.root, this.#busy, this.#pending.root);
    this.root.append(this.#notices, this.#footer.root);
  }

  dispose(): void {
    this.#blocks.dispose();
    this.root.remove();
  }

  update(run: RunView, last: boolean, asked: readonly Asked[], notice: Notice | undefined): void {
    const mine = asked.filter(({ run_id }) => run_id === this.#run_id);
    const key = `${last} ${mine.map(({ id }) => id).join()}`;
    if (run === this.#seen && key === this.#seenAsked && notice === this.#seenNotice) {
      return;
    }
    this.#head(run);
    const over = ENDED.includes(run.status.state) || run.transcript.message.finished_reason !== undefined;
    const alone = asking(run.transcript).length === 1;
    this.#blocks.update(run.transcript, over, { asked: mine, notice, alone });
    this.#tail(run, mine);
    this.#footer.update(
      run,
      last,
      mine.some(({ what }) => what === "resume"),
    );
    this.#seen = run;
    this.#seenAsked = key;
    this.#seenNotice = notice;
  }

  #head({ prompt, cut, status }: RunView): void {
    setText(this.#prompt, prompt);
    show(this.#prompt, prompt !== "");
    setText(this.#note, status.note ?? "");
    show(this.#note, Boolean(status.note));
    setText(this.#cut, `… ${count(cut)} earlier characters are not shown`);
    show(this.#cut, cut > 0);
  }

  #waiting(): ToolCallBlock[] {
    return this.#seen ? asking(this.#seen.transcript) : [];
  }

  #tail({ status, transcript }: RunView, asked: readonly Asked[]): void {
    const { content } = transcript.message;
    const open = content.some((block) => block.finished_at === undefined);
    show(this.#busy, status.state === "running" && !open);
    const over = ENDED.includes(status.state);
    this.#pending.update(over ? [] : (status.steering ?? []), asked);
    const waiting = over ? 0 : asking(transcript).length;
    this.#all.update(
      waiting,
      asked.some(({ what }) => what === "approve" || what === "deny"),
    );
    if (transcript.notices !== this.#seen?.transcript.notices) {
      this.#notices.replaceChildren(...transcript.notices.map((text) => h("p", {}, text)));
    }
  }

  #actions: CallActions = {
    decide: (call, verdict) => this.#link.decide(this.#run_id, call, verdict),
    denyAndStop: (reason) => this.#link.decideAll(this.#run_id, this.#waiting(), "deny", reason, true),
    answer: (call_id, text) => this.#link.answer(this.#run_id, call_id, text),
    stop: (call_id) => this.#link.stop(this.#run_id, call_id),
  };
  #blocks: BlocksView;
}

/** Several calls wait: one press for all of them, below the last. */
class TogetherView {
  readonly root = h("div", { class: "aw-answer aw-together", role: "group", "aria-label": "All waiting calls" });
  #approve: HTMLButtonElement;
  #others: HTMLButtonElement[];

  constructor(decide: (decision: "approve" | "deny", stop: boolean) => void) {
    this.#approve = button("", "aw-button aw-approve", () => decide("approve", false));
    this.#others = [
      button("Deny all", "aw-button aw-deny", () => decide("deny", false)),
      button("Deny all and stop", "aw-button aw-deny", () => decide("deny", true)),
    ];
    this.root.append(this.#approve, ...this.#others);
  }

  update(waiting: number, asked: boolean): void {
    setText(this.#approve, `Approve all (${waiting})`);
    for (const control of [this.#approve, ...this.#others]) {
      setBusy(control, asked);
    }
    show(this.root, waiting > 1);
  }
}

/** The calls of the run and of its sub-agents that wait for a decision. */
function asking(transcript: Transcript): ToolCallBlock[] {
  return waitingCalls(transcript).filter(({ state }) => state === "asking");
}
