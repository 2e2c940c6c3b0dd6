// Keeps the static twin in the document up to date where the kernel cannot: an update is sent to the page that saw the twin
// appear, and a page that was reloaded since, or opened later, would keep and save the beginning of a run for ever.

import type { Host } from "./host";

/** ms from the last event to the look: the kernel's own update comes first. */
const LATER_MS = 1_500;

export class TwinKeeper {
  #host: Host;
  #css_id: string;
  #ask: () => void;
  #asked = -1;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `ask`: have the kernel send the twin as it should be. */
  constructor(host: Host, css_id: string, ask: () => void) {
    this.#host = host;
    this.#css_id = css_id;
    this.#ask = ask;
  }

  /** Everything stands still at message `seq`; `undefined`: something goes on. */
  rest(seq: number | undefined): void {
    clearTimeout(this.#timer);
    if (seq !== undefined && seq !== this.#asked) {
      this.#timer = setTimeout(() => this.#look(seq), LATER_MS);
    }
  }

  write(data: Readonly<Record<string, string>>): void {
    for (const twin of this.#host.twins(this.#css_id)) {
      twin.write(data);
    }
  }

  dispose(): void {
    clearTimeout(this.#timer);
  }

  #look(seq: number): void {
    if (this.#host.twins(this.#css_id).some((twin) => twin.seq < seq)) {
      this.#asked = seq;
      this.#ask();
    }
  }
}
