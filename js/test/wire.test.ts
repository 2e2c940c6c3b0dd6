import { expect, test } from "vitest";
import { decode } from "../src/decode";
import { decodeMessage, fingerprint, newId } from "../src/wire";
import { transcriptOf } from "./golden";

test.each([
  ["delete_rows", '{"table": "orders"}', "1294a62bfc3c97b9"],
  ["f", "", "08987607b5420489"],
  ["größe", '{"a": "漢字 🙂"}', "e5b63e3206761ec4"],
  ["f", "a\ud800b\ud800\ud800c", "a4bb2c5400c18ea0"], // halves of letters, as models write them in escapes
])("the fingerprint of %s(%s) is Python's", (name, input, expected) => {
  expect(fingerprint(name, input)).toBe(expected);
});

test("ids differ and fit a command", () => {
  expect(newId()).not.toBe(newId());
  expect(newId()).toMatch(/^[0-9a-f]{32}$/);
});

const HOSTILE: readonly unknown[] = [
  null,
  undefined,
  7,
  "full",
  [],
  {},
  { kind: "full" },
  { kind: "full", seq: "1", runs: [] },
  { kind: "full", seq: 1, runs: {} },
  { kind: "full", seq: Number.NaN, runs: [] },
  { kind: "events", seq: 1, run_id: 3, events: [] },
  { kind: "events", seq: 1, run_id: "r", events: "none" },
  { kind: "notice", id: 1, text: "x" },
  { kind: "constructor" },
  { kind: "later", seq: 1 },
];

test.each(HOSTILE.map((value) => [JSON.stringify(value) ?? "undefined", value]))("%s is no message", (_name, value) => {
  expect(decodeMessage(value, { strange: 0 })).toBeUndefined();
});

test("what is not known inside a message is dropped and counted", () => {
  const doubt = { strange: 0 };
  const events = [
    null,
    { type: "FROM_THE_FUTURE" },
    { type: "constructor" },
    { type: "__proto__" },
    { type: "TEXT_BLOCK_DELTA", block_id: 4, delta: "x" },
    { type: "TOOL_RESULT_END", tool_call_id: "c", reply_id: "r", state: "exploded" },
    { type: "TEXT_BLOCK_DELTA", block_id: "t", delta: "kept" },
  ];
  const message = decodeMessage({ kind: "events", seq: 0, run_id: "r", events }, doubt);
  expect(message).toMatchObject({ events: [{ type: "TEXT_BLOCK_DELTA", delta: "kept" }] });
  expect(doubt.strange).toBe(6);
});

test("a run whose status is unknown is running; one without a status stands as its transcript says", () => {
  const doubt = { strange: 0 };
  const transcript = transcriptOf("denied");
  const runs = [
    { run_id: "a", transcript, status: { state: "dreaming", elapsed: "long", stop: 3 } },
    { run_id: "b", transcript },
    { run_id: "c", transcript: 5 },
  ];
  const message = decodeMessage({ kind: "full", seq: 3, runs }, doubt);
  expect(message).toMatchObject({ runs: [{ status: { state: "running" } }, { status: { state: "completed" } }] });
});

test("a list with an unknown block keeps the others", () => {
  const doubt = { strange: 0 };
  const message = { name: "a", role: "assistant", content: [{ type: "hologram" }, { type: "text", text: "kept", id: "t" }] };
  expect(decode("Msg", message, doubt)?.content).toMatchObject([{ text: "kept" }]);
  expect(doubt.strange).toBe(1);
});
