// A card: one view of a link. Draws when its frame comes, and scrolls only its own body.

import type { CardState, Link, RunView } from "../link";
import { waitingCalls } from "../transcript";
import { ComposerView } from "./composer";
import { copyOnClick } from "./copy";
import { h, hasFocus, isFocusShown, setText, show } from "./dom";
import { drawNoMore, drawSoon } from "./frames";
import { HeaderView, isStoppable, isStopping, standing } from "./header";
import { RulesView } from "./rules";
import { RunElement } from "./run";

const NEWER = "This card was made by a newer agent-widgets: some of it cannot be shown. Reload the page.";
const ANNOUNCE_MS = 1_000;
const GOES_ON: readonly string[] = ["running", "waiting for you", "waiting for a result"];
const NEAR_BOTTOM = 24; // px

export class CardView {
  readonly root = h("section", { class: "aw", "aria-label": "Agent" });
  #link: Link;
  #header: HeaderView;
  #scroller = h("div", { class: "aw-body", tabindex: "0", role: "region", "aria-label": "Transcript" });
  #content = h("div", { class: "aw-runs" });
  #notice = h("div", { class: "aw-notice", role: "status" });
  #live = h("div", { class: "aw-sr", "aria-live": "polite" });
  #rules: RulesView;
  #composer: ComposerView;
  #runs = new Map<string, RunElement>();
  #stuck = true;
  #top = 0;
  #announcing: ReturnType<typeof setTimeout> | undefined;
  #off: (() => void)[] = [];

  constructor(link: Link, options: { readonly composer: boolean; readonly name: string }) {
    this.#link = link;
    this.#header = new HeaderView(options.name, () => this.#stop());
    this.#rules = new RulesView(link);
    this.#composer = new ComposerView(link, options.composer);
    this.#scroller.append(this.#content);
    this.root.append(this.#header.root, this.#scroller, this.#rules.root, this.#notice, this.#live, this.#composer.root);
    this.#listen();
    this.draw();
  }

  dispose(): void {
    for (const off of this.#off) {
      off();
    }
    drawNoMore(this);
    clearTimeout(this.#announcing);
    this.#header.dispose();
    for (const run of this.#runs.values()) {
      run.dispose();
    }
    this.root.remove();
  }

  #listen(): void {
    const on = <K extends keyof HTMLElementEventMap>(target: HTMLElement, name: K, handle: (event: HTMLElementEventMap[K]) => void) => {
      target.addEventListener(name, handle);
      this.#off.push(() => target.removeEventListener(name, handle));
    };
    this.#off.push(this.#link.subscribe((urgent) => (urgent ? this.draw() : drawSoon(this))));
    on(this.root, "keydown", (event) => this.#onKey(event));
    on(this.root, "click", copyOnClick);
    on(this.#composer.root, "focusout", () => drawSoon(this)); // it stays while somebody is in it
    on(this.#scroller, "scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
      const isNear = scrollHeight - scrollTop - clientHeight < NEAR_BOTTOM;
      this.#stuck = isNear || (this.#stuck && scrollTop >= this.#top); // text that came since leaves it far, a person goes up
      this.#top = scrollTop;
    });
    // after the layout, when the height is known: to ask for it while drawing lays the page out once for each card
    const grown = new ResizeObserver(() => {
      if (this.#stuck) {
        this.#scroller.scrollTop = this.#scroller.scrollHeight;
      }
    });
    grown.observe(this.#content);
    this.#off.push(() => grown.disconnect());
    on(this.#scroller, "click", (event) => {
      if (event.target instanceof Element && event.target.closest("summary")) {
        this.#stuck = false; // what was just unfolded must not run away
      }
    });
  }

  #onKey(event: KeyboardEvent): void {
    const typing = event.target instanceof Element && event.target.matches("input, textarea, select");
    if (event.key === "Escape" && !typing && this.#stop()) {
      event.preventDefault();
      event.stopPropagation();
    }
  }

  #stop(): boolean {
    const { runs, asked, gone } = this.#link.state;
    const run = current(runs);
    if (gone !== "" || !run || !isStoppable(run) || isStopping(run, asked)) {
      return false;
    }
    this.#link.stop(run.run_id);
    return true;
  }

  draw(): void {
    drawNoMore(this);
    const state = this.#link.state;
    const run = current(state.runs);
    const gone = state.gone !== "";
    const hadFocus = hasFocus(this.root);
    this.#header.update(run, state.asked, gone);
    this.#drawRuns(state);
    this.#rules.update(state);
    this.root.classList.toggle("aw-steered", this.#composer.update(state, run));
    const notice = state.gone || (isAtItsCall(state) ? "" : (state.notice?.text ?? (state.newer ? NEWER : "")));
    setText(this.#notice, notice);
    show(this.#notice, notice !== "");
    show(this.#scroller, state.runs.length > 0);
    if (gone) {
      this.#rest();
    }
    if (hadFocus && !isFocusShown(this.root)) {
      this.#scroller.focus({ preventScroll: true }); // else the keyboard would begin anew at the top of the page
    }
    this.#announce(run || gone ? standing(run, run !== undefined && isStopping(run, state.asked), gone).word : "");
  }

  /** The kernel is gone: nothing moves and nothing can be pressed, but all of it can be read, unfolded and copied. */
  #rest(): void {
    this.root.classList.add("aw-gone");
    for (const control of this.root.querySelectorAll<HTMLButtonElement>("button:not(.aw-copy, .aw-more), select")) {
      control.disabled = true;
    }
    for (const box of this.root.querySelectorAll<HTMLInputElement | HTMLTextAreaElement>("input, textarea")) {
      box.readOnly = true;
    }
  }

  #drawRuns({ runs, asked, notice }: CardState): void {
    for (const [at, run] of runs.entries()) {
      let element = this.#runs.get(run.run_id);
      if (!element) {
        element = new RunElement(this.#link, run.run_id);
        this.#runs.set(run.run_id, element);
        this.#stuck = true;
      }
      const before = this.#content.children[at] ?? null;
      if (before !== element.root) {
        this.#content.insertBefore(element.root, before);
      }
      element.update(run, at === runs.length - 1, asked, notice);
    }
    for (const [run_id, element] of this.#runs) {
      if (!runs.some((run) => run.run_id === run_id)) {
        element.dispose();
        this.#runs.delete(run_id);
      }
    }
  }

  /** Changes of state are spoken, tokens are not; several within a second are one. */
  #announce(word: string): void {
    const before = this.#live.dataset["next"];
    this.#live.dataset["next"] = word;
    if (before === word || (before === undefined && !GOES_ON.includes(word))) {
      return; // what had ended before this view was made is no news: thirty cards would say it after a reload
    }
    this.#announcing ??= setTimeout(() => {
      this.#announcing = undefined;
      setText(this.#live, `Agent: ${this.#live.dataset["next"] ?? ""}`);
    }, ANNOUNCE_MS);
  }
}

/** Why a decision did not count is said where it is made, while it can still be made. */
function isAtItsCall({ runs, notice }: CardState): boolean {
  const about = notice?.about ?? [];
  return runs.some(({ transcript }) => waitingCalls(transcript).some(({ id, state }) => state === "asking" && about.includes(id)));
}

/** The run that the head of the card speaks of: the one that is carried, else the next in the queue, else the newest. */
function current(runs: readonly RunView[]): RunView | undefined {
  const active = runs.find(({ status }) => ["running", "stopping", "paused"].includes(status.state));
  return active ?? runs.find(({ status }) => status.state === "queued") ?? runs.at(-1);
}
