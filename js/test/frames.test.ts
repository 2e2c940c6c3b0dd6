import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Drawing, drawNoMore, drawSoon } from "../src/view/frames";

/** Draws for so many milliseconds, and remembers when. */
class Slow implements Drawing {
  readonly drawn: number[] = [];
  readonly #takes: number;

  constructor(takes: number) {
    this.#takes = takes;
  }

  draw(): void {
    drawNoMore(this);
    this.drawn.push(performance.now());
    vi.setSystemTime(Date.now() + this.#takes);
    clock += this.#takes;
  }
}

let clock = 0;

beforeEach(() => {
  vi.useFakeTimers();
  clock = 0;
  const now = performance.now.bind(performance);
  vi.spyOn(performance, "now").mockImplementation(() => now() + clock);
});

afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

test("ten cards draw in one frame if that is quick, each once however often it asks", () => {
  const cards = Array.from({ length: 10 }, () => new Slow(0));
  for (const card of [...cards, ...cards]) {
    drawSoon(card);
  }
  vi.advanceTimersByTime(20);
  expect(cards.map(({ drawn }) => drawn.length)).toEqual(Array(10).fill(1));
});

test("slow cards share several frames, in the order in which they asked, and none is forgotten", () => {
  const cards = Array.from({ length: 6 }, () => new Slow(5));
  for (const card of cards) {
    drawSoon(card);
  }
  vi.advanceTimersByTime(20);
  expect(cards.map(({ drawn }) => drawn.length)).toEqual([1, 1, 0, 0, 0, 0]);
  vi.advanceTimersByTime(1_000);
  expect(cards.map(({ drawn }) => drawn.length)).toEqual([1, 1, 1, 1, 1, 1]);
  const times = cards.map(({ drawn }) => drawn[0] ?? 0);
  expect(times).toEqual([...times].sort((a, b) => a - b));
});

test("one that is gone is not drawn", () => {
  const [gone, other] = [new Slow(0), new Slow(0)];
  drawSoon(gone);
  drawSoon(other);
  drawNoMore(gone);
  vi.advanceTimersByTime(100);
  expect([gone.drawn.length, other.drawn.length]).toEqual([0, 1]);
});
