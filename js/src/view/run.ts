// One run: the prompt, its blocks in order, the notices, the footer. Changes only what changed.

import type { Asked } from "../asked";
import type { Link, RunView } from "../link";
import { ENDED } from "../link";
import { BlocksView } from "./blocks";
import { h, setText, show } from "./dom";
import { FooterView } from "./footer";
import { count } from "./format";

export class RunElement {
  readonly root = h("article", { class: "aw-run" });
  #prompt = h("blockquote", { class: "aw-prompt" });
  #cut = h("p", { class: "aw-cut" });
  #note = h("p", { class: "aw-note" });
  #blocks: BlocksView;
  #notices = h("div", { class: "aw-notices" });
  #busy = h("div", { class: "aw-busy", "aria-hidden": "true" }, h("i"), h("i"), h("i"));
  #footer: FooterView;
  #seen: RunView | undefined;
  #seenAsked = "";
  #run_id: string;

  constructor(link: Link, run_id: string) {
    this.#run_id = run_id;
    this.#blocks = new BlocksView({
      decide: (call, what, reason) => link.decide(run_id, call, what, reason),
      stop: (call_id) => link.stop(run_id, call_id),
    });
    this.#footer = new FooterView(() => link.resume(run_id));
    this.root.append(this.#prompt, this.#note, this.#cut, this.#blocks.root, this.#busy, this.#notices, this.#footer.root);
  }

  dispose(): void {
    this.#blocks.dispose();
    this.root.remove();
  }

  /** True when something has changed. */
  update(run: RunView, last: boolean, asked: readonly Asked[]): boolean {
    const mine = asked.filter(({ run_id }) => run_id === this.#run_id);
    const key = `${last} ${mine.map(({ what, call_id }) => `${what} ${call_id}`).join()}`;
    if (run === this.#seen && key === this.#seenAsked) {
      return false;
    }
    this.#head(run);
    const over = ENDED.includes(run.status.state) || run.transcript.message.finished_reason !== undefined;
    this.#blocks.update(run.transcript, over, mine);
    this.#tail(run);
    this.#footer.update(
      run,
      last,
      mine.some(({ what }) => what === "resume"),
    );
    this.#seen = run;
    this.#seenAsked = key;
    return true;
  }

  #head({ prompt, cut, status }: RunView): void {
    setText(this.#prompt, prompt);
    show(this.#prompt, prompt !== "");
    setText(this.#note, status.note ?? "");
    show(this.#note, Boolean(status.note));
    setText(this.#cut, `… ${count(cut)} earlier characters are not shown`);
    show(this.#cut, cut > 0);
  }

  #tail({ status, transcript }: RunView): void {
    const { content } = transcript.message;
    const open = content.some((block) => block.finished_at === undefined);
    show(this.#busy, status.state === "running" && !open);
    if (transcript.notices !== this.#seen?.transcript.notices) {
      this.#notices.replaceChildren(...transcript.notices.map((text) => h("p", {}, text)));
    }
  }
}
