import { expect, test } from "vitest";
import { oneLine, prettyJson } from "../src/view/arguments";
import { between, duration, milliseconds, size, withoutAnsi } from "../src/view/format";

test("JSON is indented", () => {
  expect(prettyJson('{"a":1,"b":{"c":[true,null],"d":{},"e":[]},"f":"x, {y}: \\"z\\""}')).toBe(
    `{
  "a": 1,
  "b": {
    "c": [
      true,
      null
    ],
    "d": {},
    "e": []
  },
  "f": "x, {y}: \\"z\\""
}`,
  );
});

test("what is approved is what is shown: large numbers and equal keys stay", () => {
  expect(prettyJson('{"id":12345678901234567890,"a":1,"a":2,"x":1e400}')).toBe(
    '{\n  "id": 12345678901234567890,\n  "a": 1,\n  "a": 2,\n  "x": 1e400\n}',
  );
});

test("characters that hide or reorder others are spelled out", () => {
  expect(prettyJson('{"a":"\u202Eevil\u200B"}')).toContain('"\\u202eevil\\u200b"');
  expect(prettyJson('{"a":"\u{E0041}"}')).toContain('"\\udb40\\udc41"');
  expect(oneLine('{"a\u202E":1}')).toBe("a\\u202e=1");
});

test("escaped letters are read as letters", () => {
  expect(prettyJson('{"a":"caf\\u00e9"}')).toContain('"café"');
});

test("what is not JSON stays as it is", () => {
  expect(prettyJson('{"a": "half')).toBe('{"a": "half');
  expect(oneLine('{"a": "half')).toBe('{"a": "half');
});

test("arguments on one line", () => {
  expect(oneLine('{"city": "Paris", "days": 3, "of": {"a": [1, 2]}}')).toBe('city="Paris", days=3, of={"a": [1, 2]}');
  expect(oneLine("{}")).toBe("");
  expect(oneLine(`{"text": "${"x".repeat(1000)}"}`)).toHaveLength(301);
});

test("deep nesting costs no more than its length", () => {
  const deep = "[".repeat(3_000) + "]".repeat(3_000);
  expect(prettyJson(deep).length).toBeLessThan(6_000 * 45);
});

test("numbers and times", () => {
  expect([0.44, 12.4, 61, 3723].map(duration)).toEqual(["0.4 s", "12 s", "1:01 min", "1:02:03 h"]);
  expect([0.2, 12, 1234].map(milliseconds)).toEqual(["1 ms", "12 ms", "1.2 s"]);
  expect([1, 999, 8100].map(size)).toEqual(["1 character", "999 characters", "8.1 kB"]);
  expect(between("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:06.500000+00:00")).toBe(1.5);
  expect(between("", undefined)).toBeUndefined();
});

test("escape sequences of terminals are taken out", () => {
  expect(withoutAnsi("\u001b[1;32mgreen\u001b[0m \u001b]8;;https://x\u0007link\u001b]8;;\u0007")).toBe("green link");
});
