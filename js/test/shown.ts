// A card in a page without a kernel, and how a test looks at it. Time is vitest's.

import { afterEach, vi } from "vitest";
import card from "../src/widget";
import { type Dict, FakeModel } from "./golden";

let number = 0;
const views: (() => void)[] = [];

afterEach(() => {
  for (const off of views.splice(0)) {
    off();
  }
});

export interface Shown {
  readonly model: FakeModel;
  readonly el: HTMLElement;
  readonly over: AbortController;
}

export function shown(traits: Dict = {}): Shown {
  number += 1;
  const model = new FakeModel({ css_id: `id${number}`, ...traits });
  const over = new AbortController();
  card.initialize({ model, signal: over.signal });
  return { model, over, el: view(model, over.signal) };
}

export function view(model: FakeModel, signal?: AbortSignal): HTMLElement {
  const el = document.createElement("div");
  document.body.append(el);
  views.push(card.render({ model, el, ...(signal && { signal }) }));
  return el;
}

export function pick<T extends HTMLElement>(el: HTMLElement, selector: string): T {
  const found = el.querySelector<T>(selector);
  if (!found) {
    throw new Error(`no ${selector}`);
  }
  return found;
}

export const textOf = (el: HTMLElement, selector: string): string => pick(el, selector).textContent ?? "";
export const frame = (): void => {
  vi.advanceTimersByTime(20);
};
