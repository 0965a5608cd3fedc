import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AgentEvent } from "../../src/agent/events.ts";
import { AgentSession } from "../../src/agent/session.ts";
import {
  completeEntries,
  describeWindow,
  isMessage,
  maskEntry,
  parseEntry,
  type TranscriptEntry,
  type TranscriptMessage,
} from "../../src/agent/transcript.ts";
import {
  FunctionToolbox,
  say,
  setUpAgents,
  textResult,
  type Turn,
  TurnModel,
  use,
} from "../fixtures/agents.ts";

const signal = new AbortController().signal;

async function read(events: AsyncIterable<AgentEvent>): Promise<readonly AgentEvent[]> {
  const all: AgentEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

async function open(
  model: TurnModel,
  toolbox = new FunctionToolbox(),
  spec: object = {},
  others: Readonly<Record<string, TurnModel>> = {},
) {
  const specs = Object.fromEntries(Object.keys(others).map((name) => [name, {}]));
  const setup = setUpAgents({ main: model, ...others }, toolbox, { main: spec, ...specs });
  return new AgentSession(await setup.agent(), { id: "1", clock: setup.clock });
}

const roles = (messages: readonly TranscriptMessage[]): string =>
  messages.map(({ role }) => role).join(" ");

describe("the transcript of a conversation", () => {
  it("has every message when the model's window has only the last ones, and where the window begins", async () => {
    const turns = Array.from({ length: 7 }, (_, at) =>
      say(`${at} ${"y".repeat(2500)}`, {} as never),
    );
    const model = new TurnModel(turns, { contextTokens: 3000 });
    const session = await open(model);
    for (let at = 0; at < 7; at++) await read(session.send(`question ${at}`, { signal }));
    const { messages } = session.transcript;
    assert.equal(messages.length, 14);
    assert.equal(messages[0]?.text, "question 0");
    const asked = model.requests.at(-1)?.messages ?? [];
    assert.ok(asked.length < 13);
    const { window } = session;
    assert.ok(window !== undefined);
    // The last answer was added after the request.
    assert.equal(window.number, 13 - asked.length);
    assert.equal(window.leftOut, window.number);
    assert.match(describeWindow(window), new RegExp(`: ${window.leftOut} earlier messages`));
  });

  it("says nothing of a window as long as the model gets everything", async () => {
    const session = await open(new TurnModel([say("a")]));
    await read(session.send("x", { signal }));
    assert.equal(session.window, undefined);
  });

  it("begins the window after the gap if the last message of the user stays before it", async () => {
    const big = "x".repeat(4000);
    const toolbox = new FunctionToolbox({ a: () => textResult(big) });
    const turns: Turn[] = [
      ...Array.from({ length: 6 }, (_, at): Turn => {
        const argumentsJson = `{"n":${at},"x":"${big}"}`;
        return [
          { type: "toolCall", id: "c", name: "a", argumentsJson },
          { type: "finish", reason: "toolCalls", usage: {} },
        ];
      }),
      say("end"),
    ];
    const model = new TurnModel(turns, { contextTokens: 2600 });
    const session = await open(model, toolbox);
    await read(session.send("Do it.", { signal }));
    assert.equal(session.transcript.messages.length, 14);
    const { window } = session;
    assert.ok(window !== undefined && window.number > 1);
    assert.equal(session.history.entries[0]?.number, 0);
    assert.equal(window.leftOut, window.number - 1);
    assert.ok(!session.history.givenNumbers.has(2));
    // The results that the model does not get any more are whole here.
    const results = session.transcript.messages.filter(({ role }) => role === "tool");
    assert.ok(results.every(({ text }) => text === big));
  });

  it("has calls with their arguments, and results that are cut at resultLimit with their size", async () => {
    const toolbox = new FunctionToolbox({
      long: () => textResult("x".repeat(100)),
      picture: () =>
        textResult("", {
          content: [{ type: "image", mimeType: "image/png", data: "AAAA" }],
          size: 99,
        }),
      bad: () => textResult("no", { isError: true, code: "timeout" }),
    });
    const model = new TurnModel([use(["long", '{"a":1}'], "picture", "bad"), say("x")]);
    const session = await open(model, toolbox, { resultLimit: 40, retries: 0 });
    await read(session.send("x", { signal }));
    const [, asked, long, picture, bad] = session.transcript.messages;
    assert.ok(asked?.role === "assistant");
    assert.deepEqual(asked.toolCalls[0], { id: "c0", name: "long", argumentsJson: '{"a":1}' });
    assert.ok(long?.role === "tool" && picture?.role === "tool" && bad?.role === "tool");
    assert.match(long.text, /^x{40}\n\[cut: the result has 100 B/);
    assert.equal(long.size, 100);
    assert.match(picture.text, /^\[image, image\/png, 3 B/);
    assert.deepEqual([bad.isError, bad.text], [true, "no"]);
  });

  it("has what an agent for a task did as a part of the result, also when the task fails", async () => {
    const ask: Turn = use(["transfer_task", '{"agent":"b","task":"Test."}']);
    const toolbox = new FunctionToolbox({ a: () => textResult("ok") });
    for (const [turns, expected, isError] of [
      [[use("a"), say("yes")], "user assistant tool assistant", false],
      [[use("a"), [new Error("broken")]], "user assistant tool", true],
    ] as const) {
      const b = new TurnModel(turns);
      const session = await open(
        new TurnModel([ask, say("x")]),
        toolbox,
        { subAgents: ["b"] },
        { b },
      );
      await read(session.send("x", { signal }));
      const result = session.transcript.messages[2];
      assert.ok(result?.role === "tool" && result.run !== undefined);
      assert.equal(result.isError, isError);
      assert.equal(result.run.agent, "b");
      assert.equal(roles(result.run.messages), expected);
      assert.equal(result.run.messages[0]?.text, "Test.");
    }
  });

  it("keeps a partial answer of a run that was cancelled, and of one whose reader has left", async () => {
    for (const leaves of [true, false]) {
      const controller = new AbortController();
      const model = new TurnModel([
        async function* (_, stopped) {
          yield { type: "text", text: "half" };
          await new Promise((_resolve, reject) => {
            stopped.addEventListener("abort", () => reject(stopped.reason as Error), {
              once: true,
            });
          });
        },
      ]);
      const session = await open(model);
      for await (const event of session.send("x", { signal: controller.signal })) {
        if (event.type !== "textDelta") continue;
        if (leaves) break;
        controller.abort(new Error("no"));
      }
      const { messages, entries } = session.transcript;
      assert.equal(roles(messages), "user assistant");
      assert.match(messages[1]?.text ?? "", /^half\n\[cancelled\]$/);
      const end = entries.at(-1);
      assert.equal(end?.role === "end" && end.outcome, "cancelled");
    }
  });

  it("takes no message more when it has reached its limit, instead of dropping one", async () => {
    const big = "x".repeat(9 * 1024 * 1024);
    const session = await open(new TurnModel([say("y")]));
    for (let at = 0; at < 4; at++) await read(session.send(big, { signal }));
    assert.equal(session.transcript.messages.length, 8);
    await assert.rejects(read(session.send("one more", { signal })), { code: "limitReached" });
    assert.equal(session.transcript.messages.length, 8);
    assert.equal(session.state, "idle");
  });
});

describe("an entry of a transcript", () => {
  const tool: TranscriptEntry = {
    role: "tool",
    at: 1,
    toolCallId: "c",
    toolName: "t",
    isError: false,
    size: 3,
    duration: 1,
    text: "s3cret",
    run: { agent: "b", messages: [{ role: "user", at: 1, text: "s3cret" }] },
  };
  const asked: TranscriptEntry = {
    role: "assistant",
    at: 1,
    agent: "a",
    text: "",
    toolCalls: [
      { id: "c", name: "t", argumentsJson: '{"key":"s3cret"}' },
      { id: "d", name: "u", argumentsJson: "" },
    ],
  };
  const usage = { inputTokens: 1, outputTokens: 2 };

  it("is read again as it was written, and is nothing if it is anything else", () => {
    const entries: readonly TranscriptEntry[] = [
      { role: "user", at: 1, text: "\u0000 ü \ud83d\ude00" },
      asked,
      tool,
      { role: "end", at: 2, outcome: "error", error: "no", duration: 1, usage, toolCalls: 1 },
      { role: "agent", at: 3, agent: "b" },
    ];
    for (const entry of entries) assert.deepEqual(parseEntry(JSON.stringify(entry)), entry);
    for (const json of ["", "{", "[]", "null", '{"role":"user"}', '{"role":"x","at":1}'])
      assert.equal(parseEntry(json), undefined, json);
  });

  it("has no known secret when it is masked, in no text and at no depth", () => {
    const mask = (text: string): string => text.replaceAll("s3cret", "***");
    for (const entry of [tool, asked])
      assert.doesNotMatch(JSON.stringify(maskEntry(entry, mask)), /s3cret/);
    assert.equal(maskEntry(tool, () => "?").role, "tool");
  });

  /** What a model refuses in a conversation; undefined: nothing. */
  const faultOf = (entries: readonly TranscriptEntry[]): string | undefined => {
    let pending: readonly string[] = [];
    let last = "end";
    for (const entry of entries.filter((one) => isMessage(one))) {
      if (entry.role === "tool") {
        if (!pending.includes(entry.toolCallId)) return `no call for ${entry.toolCallId}`;
        pending = pending.toSpliced(pending.indexOf(entry.toolCallId), 1);
      } else if (pending.length > 0) return `no result for ${pending.join()}`;
      else if (entry.role === "assistant") {
        if (last === "end") return "nobody has asked";
        pending = entry.toolCalls.map(({ id }) => id);
      }
      last = entry.role;
    }
    return pending.length > 0 ? `no result for ${pending.join()}` : undefined;
  };

  it("that is missing has another one in its place, whichever lines of a conversation are lost", () => {
    const answerOf = (text: string): TranscriptEntry => ({
      role: "assistant",
      at: 1,
      agent: "a",
      text,
      toolCalls: [],
    });
    const user: TranscriptEntry = { role: "user", at: 1, text: "x" };
    const end: TranscriptEntry = {
      role: "end",
      at: 2,
      outcome: "stop",
      duration: 1,
      usage,
      toolCalls: 0,
    };
    // Ids can come again in a later answer.
    const other = { ...tool, toolCallId: "d", toolName: "u" };
    const whole = [
      user,
      asked,
      tool,
      other,
      asked,
      other,
      tool,
      answerOf("y"),
      end,
      user,
      answerOf("z"),
      end,
    ];
    assert.deepEqual(completeEntries([], whole, 3), { entries: whole, ending: [] });
    for (let lost = 1; lost < 2 ** whole.length; lost++) {
      const left = whole.filter((_, at) => (lost & (2 ** at)) === 0);
      const { entries, ending } = completeEntries([], left, 3);
      const all = [...entries, ...ending];
      const which = `without ${lost.toString(2)}`;
      assert.equal(faultOf(all), undefined, which);
      // Nothing that is left is dropped, and nothing is added when it is read again with its ending.
      assert.deepEqual(
        all.filter((one) => left.includes(one)),
        left,
        which,
      );
      const again = completeEntries([], [...left, ...ending], 4);
      assert.deepEqual(again, { entries: all, ending: [] }, which);
      assert.deepEqual(completeEntries(all, whole, 4), { entries: whole, ending: [] }, which);
    }
  });

  it("that is a result is added for each call that was not answered before the process was killed", () => {
    const first: TranscriptEntry = { role: "user", at: 1, text: "x" };
    const added = (...entries: readonly TranscriptEntry[]): readonly unknown[] =>
      completeEntries([], entries, 9).ending.map((one) =>
        one.role === "tool" ? [one.toolCallId, one.isError, one.at] : one.role,
      );
    const [c, d] = [
      ["c", true, 9],
      ["d", true, 9],
    ];
    assert.deepEqual(added(), []);
    assert.deepEqual(added(first), ["end"]);
    assert.deepEqual(added(first, asked), [c, d, "end"]);
    assert.deepEqual(added(first, asked, tool), [d, "end"]);
    assert.deepEqual(added(first, asked, tool, { ...tool, toolCallId: "d" }), ["end"]);
  });
});
