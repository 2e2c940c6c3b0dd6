import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Link } from "../src/link";
import { type Dict, events, eventsOf, FakeModel, full, LOGS, pageForm, run, transcriptOf, withoutEmpty } from "./golden";

const START: Dict = { type: "TEXT_BLOCK_START", block_id: "t", reply_id: "r", created_at: "2026-01-02T03:04:05Z" };
const delta = (text: string): Dict => ({ type: "TEXT_BLOCK_DELTA", block_id: "t", delta: text });

function textIn(link: Link): string {
  const [block] = link.state.runs[0]?.transcript.message.content ?? [];
  return block?.type === "text" ? block.text : "";
}

function linked(traits: Dict = {}): { model: FakeModel; link: Link } {
  const model = new FakeModel(traits);
  return { model, link: new Link(model) };
}

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

test.each(LOGS)("%s: a live run, one event a message, ends as the golden transcript", (log) => {
  const { model, link } = linked();
  for (const [seq, event] of eventsOf(log).entries()) {
    model.receive(events(seq, "run1", [pageForm(event)], { status: { state: "running" }, ...(seq === 0 && { prompt: "Hi" }) }));
  }
  expect(withoutEmpty(link.state.runs[0]?.transcript)).toEqual(transcriptOf(log));
  expect(link.state.runs[0]?.prompt).toBe("Hi");
  expect(link.state.newer).toBe(false);
});

test("duplicates and late messages are ignored", () => {
  const { model, link } = linked();
  model.receive(events(0, "run1", [START]));
  model.receive(events(1, "run1", [delta("a")]));
  model.receive(events(1, "run1", [delta("a")]));
  model.receive(events(0, "run1", [START]));
  model.receive(events(2, "run1", [delta("b")]));
  expect(textIn(link)).toBe("ab");
  expect(model.sentOf("resync")).toEqual([]);
});

test("a gap asks once for everything, and nothing is folded until it comes", () => {
  const { model, link } = linked();
  model.receive(events(0, "run1", [START, delta("a")]));
  model.receive(events(2, "run1", [delta("c")]));
  model.receive(events(3, "run1", [delta("d")]));
  expect(textIn(link)).toBe("a");
  expect(model.sentOf("resync")).toMatchObject([{ have: 0 }]);
  const message = { name: "a", role: "assistant", content: [{ type: "text", id: "t", text: "abcd" }] };
  model.receive(full(3, [run({ message })]));
  expect(textIn(link)).toBe("abcd");
  model.receive(events(4, "run1", [delta("e")]));
  expect(textIn(link)).toBe("abcde");
  model.receive(events(6, "run1", [delta("g")]));
  expect(model.sentOf("resync")).toHaveLength(2);
});

test("the missing message does not close a gap: what was ignored after it is lost", () => {
  const { model, link } = linked();
  model.receive(events(0, "run1", [START]));
  model.receive(events(2, "run1", [delta("b")]));
  model.receive(events(1, "run1", [delta("a")]));
  expect(textIn(link)).toBe("");
});

test("an answer that was lost is asked for again after a while", () => {
  const { model } = linked();
  model.receive(events(5, "run1", []));
  vi.advanceTimersByTime(1_000);
  model.receive(events(6, "run1", []));
  expect(model.sentOf("resync")).toHaveLength(1);
  vi.advanceTimersByTime(3_000);
  model.receive(events(7, "run1", []));
  expect(model.sentOf("resync")).toHaveLength(2);
});

test("a gap that the answer to a hello will fill is not asked about once more, unless that is lost", () => {
  const { model, link } = linked();
  link.hello();
  model.receive(events(7, "run1", [delta("late")]));
  expect(model.sentOf("resync")).toEqual([]);
  vi.advanceTimersByTime(3_100);
  model.receive(events(8, "run1", [delta("later")]));
  expect(model.sentOf("resync")).toHaveLength(1);
});

test("an older full is ignored; an equal one is taken", () => {
  const { model, link } = linked({ snapshot: full(5, [run(transcriptOf("denied"))]) });
  model.receive(full(4, []));
  expect(link.state.runs).toHaveLength(1);
  model.receive(full(5, []));
  expect(link.state.runs).toHaveLength(0);
});

test("the snapshot is taken when it is newer, and heals a gap", () => {
  const { model, link } = linked({ snapshot: full(5, []) });
  model.change("snapshot", full(5, [run(transcriptOf("denied"))]));
  expect(link.state.runs).toHaveLength(0);
  model.receive(events(8, "run1", []));
  model.change("snapshot", full(8, [run(transcriptOf("denied"))]));
  expect(link.state.runs).toHaveLength(1);
  model.receive(events(9, "run1", [{ type: "CUSTOM", name: "notice", value: { text: "on again" } }]));
  expect(link.state.runs[0]?.transcript.notices).toEqual(["on again"]);
});

test("a run that did not change keeps its identity", () => {
  const { model, link } = linked({ snapshot: full(0, [run(transcriptOf("denied"), { state: "completed" }, "old")]) });
  const before = link.state.runs[0];
  model.receive(events(1, "new", [START], { prompt: "next" }));
  expect(link.state.runs.map(({ run_id }) => run_id)).toEqual(["old", "new"]);
  expect(link.state.runs[0]).toBe(before);
});

test("hello says what the page has, and one page has one id", () => {
  const { model, link } = linked({ snapshot: full(5, []) });
  link.hello();
  link.hello();
  const [first, second] = model.sentOf("hello");
  expect(first).toMatchObject({ have: 5 });
  expect(first?.["page"]).toBe(second?.["page"]);
  expect(first?.["id"]).not.toBe(second?.["id"]);
});

test("stop is sent once however often it is pressed, and let go when the kernel is stopping", () => {
  const { model, link } = linked({ snapshot: full(0, [run(transcriptOf("paused"), { state: "paused" })]) });
  link.stop("run1");
  link.stop("run1");
  expect(model.sentOf("stop")).toMatchObject([{ run_id: "run1", after: "now" }]);
  model.receive(events(1, "run1", [], { status: { state: "paused" } }));
  expect(link.state.asked).toHaveLength(1);
  model.receive(events(2, "run1", [], { status: { state: "stopping" } }));
  expect(link.state.asked).toHaveLength(0);
});

test("a decision carries the fingerprint of what was seen; a notice releases it", () => {
  const { model, link } = linked({ snapshot: full(0, [run(transcriptOf("paused"), { state: "paused" })]) });
  link.decide("run1", { id: "c1", name: "delete_rows", input: '{"table": "orders"}' }, { decision: "deny", reason: "no" });
  link.decide("run1", { id: "c1", name: "delete_rows", input: "{}" }, { decision: "approve", reason: "" });
  const [command] = model.sentOf("decide");
  expect(model.sentOf("decide")).toHaveLength(1);
  expect(command).toMatchObject({ run_id: "run1", call_id: "c1", decision: "deny", reason: "no", fingerprint: "1294a62bfc3c97b9" });
  model.receive({ kind: "notice", id: command?.["id"], text: "It was decided already." });
  expect(link.state.asked).toEqual([]);
  expect(link.state.notice?.text).toBe("It was decided already.");
});

test("a decision is let go when the call no longer waits", () => {
  const { model, link } = linked({ snapshot: full(0, [run(transcriptOf("paused"), { state: "paused" })]) });
  link.decide("run1", { id: "c1", name: "delete_rows", input: "{}" }, { decision: "approve", reason: "" });
  model.receive(events(1, "run1", [], { status: { state: "paused" } }));
  expect(link.state.asked).toHaveLength(1);
  const result = { confirmed: true, tool_call: { id: "c1", name: "delete_rows", type: "tool_call" } };
  model.receive(events(2, "run1", [{ type: "USER_CONFIRM_RESULT", reply_id: "r1", confirm_results: [result] }]));
  expect(link.state.asked).toHaveLength(0);
});

test("a prompt is let go when its run is there", () => {
  const { model, link } = linked({ snapshot: full(0, [run(transcriptOf("denied"), { state: "completed" })]) });
  link.prompt("more");
  model.receive(events(1, "run1", []));
  expect(link.state.asked).toHaveLength(1);
  model.receive(events(2, "run2", [], { prompt: "more" }));
  expect(link.state.asked).toHaveLength(0);
});

test("a kernel that does not answer releases the button with a sentence", () => {
  const { link } = linked({ snapshot: full(0, [run(transcriptOf("paused"))]) });
  link.stop("run1");
  vi.advanceTimersByTime(10_000);
  expect(link.state.asked).toEqual([]);
  expect(link.state.notice?.text).toContain("not answered");
});

test("what was not answered in time and is pressed again is one press, and its sentence goes when it counts", () => {
  const { model, link } = linked({ snapshot: full(0, [run(transcriptOf("plain_text"), { state: "completed" })]) });
  link.prompt("delete all rows");
  vi.advanceTimersByTime(10_000);
  expect(link.state.notice?.text).toMatch(/has not answered yet/);
  link.prompt("delete all rows");
  const [first, second] = model.sentOf("send");
  expect(second?.["id"]).toBe(first?.["id"]);
  link.prompt("something else"); // one at a time
  expect(model.sentOf("send")).toHaveLength(2);
  vi.advanceTimersByTime(10_000);
  model.receive(events(1, "run2", [START], { status: { state: "running" }, prompt: "delete all rows" }));
  expect(link.state.notice).toBeUndefined();
  link.prompt("delete all rows");
  expect(model.sentOf("send").at(-1)?.["id"]).not.toBe(first?.["id"]); // wanted once more
});

test("a run of which nothing is heard is asked about, for its last message may be lost; one that has ended is not", () => {
  const { model, link } = linked();
  model.receive(events(0, "run1", [START], { status: { state: "running" } }));
  vi.advanceTimersByTime(10_000);
  model.receive(events(1, "run1", [delta("a")]));
  vi.advanceTimersByTime(14_000);
  expect(model.sentOf("hello")).toEqual([]);
  vi.advanceTimersByTime(20_000);
  expect(model.sentOf("hello")).toMatchObject([{ have: 1 }]);
  model.receive(full(2, [run(transcriptOf("plain_text"), { state: "completed" })]));
  vi.advanceTimersByTime(60_000);
  expect(model.sentOf("hello")).toHaveLength(1);
  expect(link.state.runs[0]?.status.state).toBe("completed");
});

test("a card whose transcript was cut asks for all of it, although it has heard the newest message", () => {
  const whole = linked({ snapshot: full(4, [run(transcriptOf("plain_text"), { state: "completed" })]) });
  whole.link.hello();
  expect(whole.model.sentOf("hello")).toMatchObject([{ have: 4 }]);
  const cut = linked({ snapshot: full(4, [run({ ...transcriptOf("plain_text"), cut: 100 }, { state: "completed" })]) });
  cut.link.hello();
  expect(cut.model.sentOf("hello")).toMatchObject([{ have: -1 }]);
});

test("a closed comm is said, not thrown", () => {
  const { model, link } = linked({ snapshot: full(0, [run(transcriptOf("paused"))]) });
  model.send = () => {
    throw new Error("comm is closed");
  };
  link.hello();
  link.stop("run1");
  expect(link.state.asked).toEqual([]);
  expect(link.state.notice?.text).toContain("Nothing was sent");
});

test("nothing that a kernel sends is thrown; what is unknown is said", () => {
  const { model, link } = linked({ snapshot: "nonsense" });
  for (const message of [null, 1, [], {}, { kind: "x" }, { kind: "events", seq: 0, run_id: "r", events: [{ type: "FUTURE" }] }]) {
    model.receive(message);
  }
  expect(link.state.newer).toBe(true);
});

test("disposing takes every listener off the model", () => {
  const { model, link } = linked();
  expect(model.listenerCount()).toBe(3);
  link.stop("run1");
  link.dispose();
  expect(model.listenerCount()).toBe(0);
  expect(vi.getTimerCount()).toBe(0);
});

test("a run that has ended is kept in the model's traits, where a saved notebook finds it", () => {
  const { model, link } = linked();
  model.receive(events(0, "run1", [START, delta("an answer")], { prompt: "Hi" }));
  expect(model.get("snapshot")).toEqual({});
  model.receive(events(1, "run1", [], { status: { state: "completed" } }));
  const again = new Link(new FakeModel({ snapshot: JSON.parse(JSON.stringify(model.get("snapshot"))) }));
  expect(textIn(again)).toBe("an answer");
  expect(again.state.runs[0]?.status.state).toBe("completed");
  expect(again.state.newer).toBe(false);
  link.dispose();
});
