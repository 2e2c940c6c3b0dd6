import { expect, test } from "vitest";
import { type Doubt, decode } from "../src/decode";
import type { AgentEvent, Transcript } from "../src/events";
import { TranscriptBuilder } from "../src/transcript";
import { type Dict, eventsOf, LOGS, pageForm, transcriptOf, withoutEmpty } from "./golden";

function read(events: readonly Dict[]): AgentEvent[] {
  const doubt: Doubt = { strange: 0 };
  const decoded = events.flatMap((event) => decode("AgentEvent", event, doubt) ?? []);
  expect(doubt.strange).toBe(0);
  expect(decoded).toHaveLength(events.length);
  return decoded;
}

function fold(events: readonly AgentEvent[], start?: Transcript): Transcript {
  const builder = new TranscriptBuilder(start);
  for (const event of events) {
    builder.apply(event);
  }
  return builder.freeze();
}

test("there are golden logs", () => expect(LOGS.length).toBeGreaterThanOrEqual(8));

test.each(LOGS)("%s: folding gives the transcript that Python folds", (log) => {
  expect(withoutEmpty(fold(read(eventsOf(log))))).toEqual(transcriptOf(log));
});

test.each(LOGS)("%s: events in page form give the same", (log) => {
  expect(withoutEmpty(fold(read(eventsOf(log).map(pageForm))))).toEqual(transcriptOf(log));
});

test.each(LOGS)("%s: reading in between changes nothing", (log) => {
  const builder = new TranscriptBuilder();
  for (const event of read(eventsOf(log))) {
    builder.apply(event);
    builder.freeze();
  }
  expect(withoutEmpty(builder.freeze())).toEqual(transcriptOf(log));
});

test.each(LOGS)("%s: going on from a transcript that was sent gives the same", (log) => {
  const all = read(eventsOf(log));
  for (let cut = 0; cut < all.length; cut += 1) {
    const sent = decode("Transcript", withoutEmpty(fold(all.slice(0, cut))), { strange: 0 });
    expect(withoutEmpty(fold(all.slice(cut), sent))).toEqual(transcriptOf(log));
  }
});

test("a block that no event touched keeps its identity", () => {
  const builder = new TranscriptBuilder();
  const all = read(eventsOf("two_tools"));
  for (const event of all.slice(0, -4)) {
    builder.apply(event);
  }
  const before = builder.freeze();
  expect(builder.freeze()).toBe(before);
  for (const event of all.slice(-4)) {
    builder.apply(event);
  }
  const after = builder.freeze();
  expect(after).not.toBe(before);
  expect(after.message.content.slice(0, -1)).toEqual(before.message.content.slice(0, -1));
  for (const [at, block] of before.message.content.slice(0, -1).entries()) {
    expect(after.message.content[at]).toBe(block);
  }
});

test("a million deltas are folded in seconds", () => {
  const builder = new TranscriptBuilder();
  builder.apply(read([{ type: "TEXT_BLOCK_START", reply_id: "r", block_id: "t" }])[0] as AgentEvent);
  const [delta] = read([{ type: "TEXT_BLOCK_DELTA", block_id: "t", delta: "word " }]);
  const start = performance.now();
  for (let number = 0; number < 1_000_000; number += 1) {
    builder.apply(delta as AgentEvent);
  }
  const [block] = builder.freeze().message.content;
  expect(block?.type === "text" && block.text.length).toBe(5_000_000);
  expect(performance.now() - start).toBeLessThan(5_000);
});
