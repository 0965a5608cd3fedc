import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Model, ModelFailure, ModelPart, ModelRequest } from "../../src/agent/model.ts";
import { HubError } from "../../src/base/errors.ts";
import type { FakeAnswer } from "../fixtures/models/answer.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import { poll } from "../harness/wait.ts";

export const REQUEST: ModelRequest = {
  instruction: "Be brief.",
  messages: [{ role: "user", content: [{ type: "text", text: "Hello" }] }],
  tools: [
    {
      name: "files__read",
      description: "Reads a file.",
      inputSchema: { type: "object", properties: { path: { type: "string" } } },
    },
  ],
};

/** Time limit of a request in the models that the suite opens, in ms. */
export const TIMEOUT = 60_000;

/** A model under test, which gives the answers in turn, one a request. */
export interface ModelSetup {
  /** Opened after the answers are known. */
  open(clock: VirtualClock, answers: readonly FakeAnswer[]): Promise<Model>;
  /** How many requests its model has got and not ended; absent if that cannot be seen. */
  openRequests?(): number;
  /** What it cannot do. */
  readonly lacks?: readonly ("thinking" | "usage" | "cut" | "refused" | "pieces" | "invalidJson")[];
  /** The reasons for failures that it can give. */
  readonly failures: readonly ModelFailure["reason"][];
}

export async function collect(
  model: Model,
  request: ModelRequest = REQUEST,
  signal: AbortSignal = new AbortController().signal,
): Promise<readonly ModelPart[]> {
  const parts: ModelPart[] = [];
  for await (const part of model.stream(request, signal)) parts.push(part);
  return parts;
}

export function textOf(parts: readonly ModelPart[], type: "text" | "thinking" = "text"): string {
  return parts.map((part) => (part.type === type ? part.text : "")).join("");
}

export function finishOf(parts: readonly ModelPart[]) {
  const last = parts.at(-1);
  assert.ok(last?.type === "finish");
  assert.equal(parts.filter(({ type }) => type === "finish").length, 1);
  return last;
}

/** The error modelFailed that a request ends with. */
export async function failureOf(work: Promise<unknown>): Promise<HubError> {
  const error = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof HubError, String(error));
  assert.equal(error.code, "modelFailed", error.message);
  return error;
}

/** The contract of every `Model`. */
export function modelContract(
  name: string,
  withModel: (run: (setup: ModelSetup) => Promise<void>) => Promise<void>,
): void {
  const test = (sentence: string, run: (setup: ModelSetup) => Promise<void>): void =>
    void it(sentence, () => withModel(run));

  describe(`a model: ${name}`, () => {
    test("passes on text, thinking and usage, and ends once", async (setup) => {
      const { lacks = [] } = setup;
      const usage = { inputTokens: 12, outputTokens: 34 };
      const answer = { thinking: "Hm.", text: ["Good ", "morning ☀"], ...usage };
      const parts = await collect(await setup.open(new VirtualClock(), [answer]));
      const { reason, usage: found } = finishOf(parts);
      assert.equal(textOf(parts), "Good morning ☀");
      assert.equal(reason, "stop");
      if (!lacks.includes("thinking")) assert.equal(textOf(parts, "thinking"), "Hm.");
      if (!lacks.includes("usage")) assert.deepEqual({ ...found }, usage);
      if (!lacks.includes("pieces"))
        assert.ok(parts.filter(({ type }) => type === "text").length > 1);
    });

    test("passes on several calls of tools, with their arguments as they were written", async (setup) => {
      const calls = [
        { id: "call-a", name: "files__read", json: '{"path":"a ☀"}' },
        { id: "call-b", name: "files__read", json: "{}" },
      ];
      const parts = await collect(
        await setup.open(new VirtualClock(), [{ text: ["Look:"], calls }]),
      );
      const found = parts.flatMap((part) => (part.type === "toolCall" ? [part] : []));
      assert.deepEqual(
        found.map((call) => [call.name, call.argumentsJson]),
        calls.map((call) => [call.name, call.json]),
      );
      assert.equal(new Set(found.map(({ id }) => id)).size, 2);
      assert.equal(finishOf(parts).reason, "toolCalls");
    });

    test("passes on arguments that are not JSON", async (setup) => {
      if (setup.lacks?.includes("invalidJson") === true) return;
      const calls = [{ id: "call-a", name: "files__read", json: '{"path": oops' }];
      const parts = await collect(await setup.open(new VirtualClock(), [{ calls }]));
      const call = parts.find((part) => part.type === "toolCall");
      assert.equal(call?.argumentsJson, '{"path": oops');
    });

    for (const finish of ["length", "refused"] as const) {
      test(`says that an answer has ended as ${finish}`, async (setup) => {
        if (finish === "refused" && setup.lacks?.includes("refused") === true) return;
        const parts = await collect(
          await setup.open(new VirtualClock(), [{ text: ["I"], finish }]),
        );
        assert.equal(finishOf(parts).reason, finish);
      });
    }

    test("fails with the reason, and answers the next request", async (setup) => {
      const { failures } = setup;
      const answers = [...failures.map((failure) => ({ failure })), { text: ["ok"] }];
      const model = await setup.open(new VirtualClock(), answers);
      for (const reason of failures) {
        assert.equal((await failureOf(collect(model))).data?.["reason"], reason);
      }
      assert.equal(textOf(await collect(model)), "ok");
    });

    test("fails if the answer stops in the middle, after what was said", async (setup) => {
      if (setup.lacks?.includes("cut") === true) return;
      const model = await setup.open(new VirtualClock(), [{ text: ["Half"], ending: "cut" }]);
      const parts: ModelPart[] = [];
      const read = async (): Promise<void> => {
        for await (const part of model.stream(REQUEST, new AbortController().signal))
          parts.push(part);
      };
      const { data } = await failureOf(read());
      assert.match(String(data?.["reason"]), /^(?:unreachable|badAnswer)$/);
      assert.equal(
        parts.some(({ type }) => type === "finish"),
        false,
      );
    });

    test("fails when the time of an answer is over, and keeps nothing open", async (setup) => {
      const clock = new VirtualClock();
      const model = await setup.open(clock, [{ text: ["I"], ending: "hang" }]);
      const failing = failureOf(collect(model));
      await untilAsked(setup);
      await clock.advanceAsync(TIMEOUT - 1);
      await clock.advanceAsync(1);
      assert.equal((await failing).data?.["reason"], "timeout");
      await untilClosed(setup);
      assert.deepEqual(clock.pendingDelays, []);
    });

    test("ends with the signal's reason, and keeps nothing open, whenever it is aborted", async (setup) => {
      const clock = new VirtualClock();
      const hang = { text: ["I"], ending: "hang" } as const;
      const model = await setup.open(clock, [hang, hang, hang]);
      const reason = new Error("enough");
      await assert.rejects(collect(model, REQUEST, AbortSignal.abort(reason)), reason);
      for (const when of ["before it answers", "in the middle"]) {
        const abort = new AbortController();
        const stream = model.stream(REQUEST, abort.signal)[Symbol.asyncIterator]();
        const isSilent = setup.lacks?.includes("pieces") === true;
        if (when === "in the middle" && !isSilent) {
          assert.deepEqual((await stream.next()).value, { type: "text", text: "I" });
        }
        const next = stream.next();
        await untilAsked(setup);
        abort.abort(reason);
        if (when === "in the middle" || isSilent) await assert.rejects(next, reason);
        else {
          // Its first part may have come before.
          await next.then(
            () => assert.rejects(stream.next(), reason),
            (error: unknown) => assert.equal(error, reason),
          );
        }
        await untilClosed(setup);
      }
      assert.deepEqual(clock.pendingDelays, []);
    });

    test("keeps nothing open if its reader leaves", async (setup) => {
      if (setup.lacks?.includes("pieces") === true) return;
      const clock = new VirtualClock();
      const model = await setup.open(clock, [{ text: ["I"], ending: "hang" }]);
      for await (const part of model.stream(REQUEST, new AbortController().signal)) {
        assert.equal(part.type, "text");
        break;
      }
      await untilClosed(setup);
      assert.deepEqual(clock.pendingDelays, []);
    });
  });
}

async function untilAsked({ openRequests }: ModelSetup): Promise<void> {
  if (openRequests === undefined) return;
  await poll(
    5000,
    () => "a request",
    () => openRequests() > 0 || undefined,
  );
}

async function untilClosed({ openRequests }: ModelSetup): Promise<void> {
  if (openRequests === undefined) return;
  await poll(
    1000,
    () => "the end of the request",
    () => openRequests() === 0 || undefined,
  );
}
