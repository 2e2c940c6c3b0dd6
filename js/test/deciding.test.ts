import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { fingerprint } from "../src/wire";
import { type Dict, events, eventsOf, full, pageForm, run, transcriptOf } from "./golden";
import { frame, pick, type Shown, shown, textOf, view } from "./shown";

const INPUT = `{"table": "orders", "where": "created < '2020-01-01'"}`;
const RULES = [
  { tool_name: "delete_rows", type: "x" },
  { tool_name: "delete_rows", rule_content: "table=orders" },
];

function asking(count = 1, rules: readonly Dict[] = RULES): Dict {
  const content = Array.from({ length: count }, (_, at) => ({
    type: "tool_call",
    id: `c${at + 1}`,
    name: "delete_rows",
    input: INPUT,
    state: "asking",
    suggested_rules: rules,
    finished_at: "2026-01-02T03:04:05Z",
  }));
  return { message: { name: "assistant", role: "assistant", id: "r1", content } };
}

function paused(count = 1, status: Dict = {}): Shown {
  return shown({ snapshot: full(0, [run(asking(count), { state: "paused", ...status })]) });
}

function press(el: HTMLElement, selector: string): void {
  pick<HTMLButtonElement>(el, selector).click();
}

function named(el: HTMLElement, name: string): HTMLButtonElement {
  const found = [...el.querySelectorAll("button")].find((one) => one.textContent === name || one.getAttribute("aria-label") === name);
  if (!found) {
    throw new Error(`no button ${name}`);
  }
  return found;
}

function type(box: HTMLTextAreaElement | HTMLInputElement, text: string): void {
  box.value = text;
  box.dispatchEvent(new Event("input", { bubbles: true }));
}

function enter(box: HTMLElement): void {
  box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
}

const form = (el: HTMLElement): HTMLTextAreaElement => pick(el, ".aw-edit");

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  document.body.replaceChildren();
  vi.useRealTimers();
});

// -- edit before approve

test("Edit opens the arguments as text, with the focus in it; what is approved is that text, byte for byte", () => {
  const { el, model } = paused();
  expect(form(el).hidden).toBe(true);
  named(el, "Edit").click();
  expect(form(el).value).toBe(`{\n  "table": "orders",\n  "where": "created < '2020-01-01'"\n}`);
  expect(document.activeElement).toBe(form(el));
  type(form(el), '{"table":  "drafts",\n "id": 12345678901234567890}');
  press(el, ".aw-approve");
  expect(model.sentOf("decide")).toMatchObject([
    {
      decision: "approve",
      arguments: '{"table":  "drafts",\n "id": 12345678901234567890}',
      fingerprint: fingerprint("delete_rows", INPUT),
    },
  ]);
});

test("a form that was not changed approves what the model wrote", () => {
  const { el, model } = paused();
  named(el, "Edit").click();
  press(el, ".aw-approve");
  expect(model.sentOf("decide")[0]).not.toHaveProperty("arguments");
});

test.each([
  ['{"table": ', "This is not JSON yet"],
  ["[1]", "must be a JSON object"],
])("%s is not sent, and the form says why", (text, why) => {
  const { el, model } = paused();
  named(el, "Edit").click();
  type(form(el), text);
  press(el, ".aw-approve");
  expect(model.sentOf("decide")).toEqual([]);
  expect(textOf(el, ".aw-fault")).toContain(why);
  expect([form(el).getAttribute("aria-invalid"), form(el).value]).toEqual(["true", text]);
  type(form(el), "{}");
  expect(pick(el, ".aw-fault").hidden).toBe(true);
});

test("what the kernel refuses is said at the form, and nothing of what was typed is lost", () => {
  const { el, model } = paused();
  named(el, "Edit").click();
  type(form(el), '{"tabel": "drafts"}');
  press(el, ".aw-approve");
  expect([textOf(el, ".aw-approve"), form(el).readOnly]).toEqual(["Approving…", true]);
  const text = "The arguments do not fit delete_rows: table: Field required.";
  model.receive({ kind: "notice", id: model.sentOf("decide")[0]?.["id"], text });
  frame();
  expect(textOf(el, ".aw-fault")).toBe(text);
  expect(pick(el, ".aw-notice").hidden).toBe(true);
  expect([form(el).value, form(el).readOnly, form(el).hidden]).toEqual(['{"tabel": "drafts"}', false, false]);
  type(form(el), '{"table": "drafts"}');
  press(el, ".aw-approve");
  expect(model.sentOf("decide")).toHaveLength(2);
});

test("news of the run leaves what was typed alone; Undo edit brings the model's arguments back", () => {
  const { el, model } = paused();
  named(el, "Edit").click();
  type(form(el), "half");
  model.receive(events(1, "run1", [], { status: { state: "paused", elapsed: 9 } }));
  frame();
  expect(form(el).value).toBe("half");
  named(el, "Undo edit").click();
  expect([form(el).hidden, pick(el, "pre.aw-arguments").hidden]).toEqual([true, false]);
  named(el, "Edit").click();
  expect(form(el).value).toContain("orders");
});

test("Enter in the form is a new line, and Esc there stops nothing", () => {
  const { el, model } = paused();
  named(el, "Edit").click();
  enter(form(el));
  form(el).dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  expect(model.sent.map(({ kind }) => kind)).toEqual(["hello"]);
});

test("a call that a person changed shows what the model had asked for", () => {
  const { el } = shown({ snapshot: full(0, [run(transcriptOf("approved"), { state: "completed" })]) });
  expect(textOf(el, ".aw-tool")).toContain(`Changed by a person. The model had asked for (table="orders", where="created < '2020-01-01'")`);
  expect(textOf(el, ".aw-tool-line")).toContain("2019-01-01");
});

// -- always

test("a rule is kept when it was chosen: the narrow one first, and the button says so", () => {
  const { el, model } = paused();
  const again = pick<HTMLSelectElement>(el, ".aw-again");
  const words = [...again.options].map((option) => option.textContent);
  expect(words).toEqual(["this time only", "always delete_rows with table=orders", "always delete_rows"]);
  again.selectedIndex = 1;
  again.dispatchEvent(new Event("change"));
  expect(textOf(el, ".aw-approve")).toBe("Always allow");
  press(el, ".aw-approve");
  expect(model.sentOf("decide")[0]?.["rule"]).toEqual({ tool_name: "delete_rows", rule_content: "table=orders" });
});

test("while the arguments are edited only the wide rule can be kept", () => {
  const { el, model } = paused();
  const again = pick<HTMLSelectElement>(el, ".aw-again");
  again.selectedIndex = 1;
  named(el, "Edit").click();
  expect([again.selectedIndex, again.options[1]?.disabled, again.options[2]?.disabled]).toEqual([0, true, false]);
  again.selectedIndex = 2;
  type(form(el), "{}");
  press(el, ".aw-approve");
  expect(model.sentOf("decide")).toMatchObject([{ arguments: "{}", rule: { tool_name: "delete_rows" } }]);
});

test("where no rule can be kept nothing is offered", () => {
  const { el } = shown({ snapshot: full(0, [run(asking(1, []), { state: "paused" })]) });
  expect(pick(el, ".aw-again").hidden).toBe(true);
});

test("the rules in force are shown, and each can be taken back once", () => {
  const { el, model } = shown({ snapshot: full(0, [run(transcriptOf("plain_text"), { state: "completed" })]) });
  expect(pick(el, ".aw-rules").hidden).toBe(true);
  model.receive({ kind: "rules", rules: [{ tool_name: "rm" }, { tool_name: "mv", rule_content: "to=/tmp" }, { nonsense: 1 }] });
  frame();
  expect(textOf(el, ".aw-rules")).toBe("Allowed without asking:rm✕mv(to=/tmp)✕");
  const off = named(el, "Ask again about mv(to=/tmp)");
  off.click();
  off.click();
  expect(model.sentOf("forget")).toMatchObject([{ rule: { tool_name: "mv", rule_content: "to=/tmp" } }]);
  expect(off.disabled).toBe(true);
  expect(textOf(view(model), ".aw-rules")).toContain("mv");
  model.receive({ kind: "rules", rules: [] });
  frame();
  expect(pick(el, ".aw-rules").hidden).toBe(true);
});

// -- deny and stop, and several calls

test("Deny and stop is one press, with the reason, about all that waits", () => {
  const { el, model } = paused();
  type(pick(el, ".aw-reason"), "never");
  named(el, "Deny and stop").click();
  const calls = { c1: fingerprint("delete_rows", INPUT) };
  expect(model.sentOf("decide_all")).toMatchObject([{ run_id: "run1", calls, decision: "deny", reason: "never", stop: true }]);
  expect(pick<HTMLButtonElement>(el, ".aw-stop").disabled).toBe(false); // Stop is never out of reach while a call waits
});

test("several calls can be decided together, each bound to what was seen; one alone has no such row", () => {
  expect(pick(paused().el, ".aw-together").hidden).toBe(true);
  const { el, model } = paused(3);
  named(el, "Approve all (3)").click();
  named(el, "Deny all").click();
  const seen = fingerprint("delete_rows", INPUT);
  expect(model.sentOf("decide_all")).toMatchObject([{ calls: { c1: seen, c2: seen, c3: seen }, decision: "approve", stop: false }]);
  expect([...el.querySelectorAll(".aw-decision .aw-approve")].map((one) => one.textContent)).toEqual(Array(3).fill("Approving…"));
  const results = ["c1", "c2", "c3"].map((id) => ({
    confirmed: true,
    tool_call: { id, name: "delete_rows", input: INPUT, type: "tool_call" },
  }));
  model.receive(
    events(1, "run1", [{ type: "USER_CONFIRM_RESULT", reply_id: "r1", confirm_results: results }], { status: { state: "running" } }),
  );
  frame();
  expect(pick(el, ".aw-together").hidden).toBe(true);
  expect(el.querySelector(".aw-decision")).toBeNull();
});

test("with one of two decided, the other is alone", () => {
  const { el, model } = paused(2);
  expect(named(el, "Deny and stop").hidden).toBe(true);
  const result = { confirmed: false, tool_call: { id: "c1", name: "delete_rows", input: INPUT, type: "tool_call" } };
  model.receive(events(1, "run1", [{ type: "USER_CONFIRM_RESULT", reply_id: "r1", confirm_results: [result] }]));
  frame();
  expect(named(el, "Deny and stop").hidden).toBe(false);
  expect(pick(el, ".aw-together").hidden).toBe(true);
});

// -- results from outside

test("the result of an outside call is given in a box, and comes back when it was not used", () => {
  const log = eventsOf("hints_and_notices");
  const until = log.findIndex(({ type: kind }) => kind === "REQUIRE_EXTERNAL_EXECUTION");
  const { el, model } = shown();
  model.receive(events(0, "run1", log.slice(0, until + 1).map(pageForm), { status: { state: "paused", steerable: true } }));
  frame();
  const box = pick<HTMLTextAreaElement>(el, ".aw-tool textarea");
  enter(box);
  type(box, "Yes, it is.");
  enter(box);
  expect(model.sentOf("answer")).toMatchObject([{ run_id: "run1", call_id: "c1", text: "Yes, it is." }]);
  expect([box.value, named(el, "Give result").disabled]).toEqual(["", true]);
  model.receive({ kind: "notice", id: model.sentOf("answer")[0]?.["id"], text: "It was not used." });
  frame();
  expect(box.value).toBe("Yes, it is.");
});

// -- steering

function steered(status: Dict = {}): Shown {
  return shown({
    snapshot: full(0, [run({ message: { name: "a", role: "assistant", content: [] } }, { state: "running", steerable: true, ...status })]),
  });
}

const box = (el: HTMLElement): HTMLTextAreaElement => pick(el, ".aw-composer textarea");

test("a run that can be steered has a box, which takes no focus; one that cannot has none", () => {
  const { el } = steered();
  expect(pick(el, ".aw-composer").hidden).toBe(false);
  expect(document.activeElement).toBe(document.body);
  expect(pick(el, ".aw").className).toContain("aw-steered");
  expect(pick(steered({ steerable: false }).el, ".aw-composer").hidden).toBe(true);
});

test("Enter steers; the note waits in the transcript until it is withdrawn or has entered", () => {
  const { el, model } = steered();
  type(box(el), "in French, please");
  enter(box(el));
  const [command] = model.sentOf("steer");
  expect(command).toMatchObject({ run_id: "run1", text: "in French, please" });
  expect(box(el).value).toBe("");
  const steering = [{ id: String(command?.["id"]), text: "in French, please" }];
  model.receive(events(1, "run1", [], { status: { state: "running", steerable: true, steering } }));
  frame();
  expect(textOf(el, ".aw-unread")).toContain("in French, please");
  named(el, "Withdraw: in French, please").click();
  named(el, "Withdraw: in French, please").click();
  expect(model.sentOf("withdraw")).toMatchObject([{ run_id: "run1", steer_id: command?.["id"] }]);
  const hint = { type: "HINT_BLOCK", reply_id: "r", block_id: command?.["id"], source: "user", hint: "in French, please", created_at: "" };
  model.receive(events(2, "run1", [hint], { status: { state: "running", steerable: true } }));
  frame();
  expect(el.querySelector(".aw-unread")).toBeNull();
  expect(textOf(el, ".aw-blocks blockquote")).toBe("in French, please");
  expect(el.querySelector(".aw-hint")).toBeNull();
});

test("two different notes may be on their way; the same twice is one press", () => {
  const { el, model } = steered();
  for (const text of ["one", "two", "two"]) {
    type(box(el), text);
    enter(box(el));
  }
  expect(model.sentOf("steer").map(({ text }) => text)).toEqual(["one", "two"]);
});

test("what was not read when the run ends comes back into the box once, and Send asks it as the next question", () => {
  const { el, model } = steered({ steering: [{ id: "n1", text: "in French" }] });
  model.receive(events(1, "run1", [], { status: { state: "interrupted", steerable: true, steering: [{ id: "n1", text: "in French" }] } }));
  frame();
  expect([box(el).value, pick(el, ".aw-composer").hidden]).toEqual(["in French", false]);
  expect(el.querySelector(".aw-unread")).toBeNull();
  named(el, "Send").click();
  expect(model.sentOf("send")).toMatchObject([{ text: "in French" }]);
  model.receive(events(2, "run2", [], { status: { state: "running", steerable: true }, prompt: "in French" }));
  model.receive(events(3, "run2", [], { status: { state: "completed", steerable: true } }));
  frame();
  expect([box(el).value, pick(el, ".aw-composer").hidden]).toEqual(["", true]);
});

test("what a person is typing when the run ends stays in the box", () => {
  const { el, model } = steered({ steering: [{ id: "n1", text: "in French" }] });
  type(box(el), "half a thou");
  model.receive(events(1, "run1", [], { status: { state: "completed", steerable: true, steering: [{ id: "n1", text: "in French" }] } }));
  frame();
  expect([box(el).value, pick(el, ".aw-composer").hidden]).toEqual(["half a thou", false]);
});

test("a run that is stopping takes nothing more", () => {
  const { el, model } = steered({ state: "stopping" });
  type(box(el), "wait");
  enter(box(el));
  expect([model.sentOf("steer"), box(el).value]).toEqual([[], "wait"]);
});

const END = { answer_by: "2026-01-02T03:05:05Z", answer_within: 60 };

function waiting(more: Dict): Shown {
  const transcript = asking();
  const message = transcript["message"] as { content: Dict[] };
  message.content = message.content.map((block) => ({ ...block, ...more }));
  return shown({ snapshot: full(0, [run(transcript, { state: "paused" })]) });
}

test("a question with a time limit says how long it still waits, second by second, and until when", () => {
  vi.setSystemTime(new Date("2026-01-02T03:04:05Z"));
  const { el } = waiting(END);
  const time = new Date(END.answer_by).toTimeString().slice(0, 8);
  expect(pick(el, ".aw-limit").hidden).toBe(false);
  expect(textOf(el, ".aw-limit")).toBe(`Unanswered, it is denied in 1:00 min, at ${time}.`);
  vi.advanceTimersByTime(55_000);
  expect(textOf(el, ".aw-limit")).toBe(`Unanswered, it is denied in 5 s, at ${time}.`);
  vi.advanceTimersByTime(60_000);
  expect(textOf(el, ".aw-limit")).toContain("in 0 s");
});

test("a limit of days says the day", () => {
  vi.setSystemTime(new Date("2026-01-02T12:00:00Z"));
  const { el } = waiting({ answer_by: "2026-01-05T12:00:00Z", answer_within: 259_200 });
  expect(textOf(el, ".aw-limit")).toMatch(/in 72:00:00 h, at 2026-01-05 /);
});

test("a question without a limit says nothing of one", () => {
  const { el } = paused();
  expect(pick(el, ".aw-limit").hidden).toBe(true);
});

test("an outside result with a time limit says so too, and no timer is left when the card goes", () => {
  vi.setSystemTime(new Date("2026-01-02T03:04:05Z"));
  const { el, over } = waiting({ ...END, state: "submitted" });
  expect(textOf(el, ".aw-limit")).toContain("it is given up in 1:00 min");
  frame(); // the style is put on
  over.abort();
  vi.advanceTimersByTime(100); // the page rests after drawing, and no longer
  expect(vi.getTimerCount()).toBe(0);
});
