import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { ConversationStore } from "../../src/agent/conversation-store.ts";
import type { ModelPart } from "../../src/agent/model.ts";
import { systemClock } from "../../src/base/clock.ts";
import { type Conversation, Conversations } from "../../src/control/conversations.ts";
import type { AgentSpec } from "../../src/manifest/agents.ts";
import { FunctionToolbox, say, setUpAgents, type Turn, TurnModel } from "../fixtures/agents.ts";

type Told = Readonly<Record<string, unknown>> & { readonly type: string; readonly seq: number };

/** The events of a conversation after a number, until one of this type, the n-th. */
async function read(
  conversation: Conversation,
  after: number,
  type: string,
  times = 1,
): Promise<readonly Told[]> {
  const found: Told[] = [];
  let [rest, seen] = ["", 0];
  const decoder = new TextDecoder();
  for await (const bytes of conversation.open(after)) {
    rest += decoder.decode(bytes, { stream: true });
    const blocks = rest.split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const data = /^data: (.*)$/m.exec(block)?.[1];
      const kind = /^event: (.*)$/m.exec(block)?.[1];
      if (data === undefined) continue;
      found.push({ type: kind, ...(JSON.parse(data) as object) } as Told);
      if (found.at(-1)?.type === type) seen++;
    }
    if (seen >= times) break;
  }
  return found;
}

async function setUp(
  turns: readonly Turn[] | TurnModel,
  spec: Partial<AgentSpec>,
  work: (
    conversations: Conversations,
    start: () => Promise<Conversation>,
    /** Those of another hub of this user, with the same agents. */
    other: Conversations,
    opened: { count: number },
  ) => Promise<void>,
): Promise<void> {
  const stateFolder = await mkdtemp(join(tmpdir(), "conversations-"));
  const main = turns instanceof TurnModel ? turns : new TurnModel(turns);
  const setup = setUpAgents({ main }, new FunctionToolbox(), { main: spec });
  const opened = { count: 0 };
  const openAgent = async () => {
    opened.count++;
    return {
      agent: await setup.agent(),
      notes: [],
      client: "c",
      mode: undefined,
      opener: "main",
      from: "manifest /m.toml",
      file: undefined,
      expand: (message: string) => message,
      promptsOf: () => [],
      setMode: () => Promise.resolve(),
      close: async () => void opened.count--,
    };
  };
  const warn = (text: string): never => assert.fail(text);
  const store = new ConversationStore({ stateFolder, mask: (text) => text, warn });
  const openHub = (): Conversations =>
    new Conversations({
      clock: systemClock,
      openStore: () => Promise.resolve(store),
      readFrom: () => Promise.resolve("manifest /m.toml"),
      openAgent,
    });
  const [conversations, other] = [openHub(), openHub()];
  const start = async (): Promise<Conversation> => conversations.start(await openAgent());
  try {
    await work(conversations, start, other, opened);
  } finally {
    for (const hub of [conversations, other]) for (const open of await hub.all()) hub.close(open);
    await rm(stateFolder, { recursive: true, force: true });
  }
}

/** A turn of so many events that those before it are not kept. */
const LONG: Turn = async function* (): AsyncGenerator<ModelPart> {
  for (let at = 0; at < 2100; at++) {
    yield { type: "thinking", text: "t" };
    yield { type: "text", text: `${at} ` };
  }
  yield { type: "finish", reason: "stop", usage: {} };
};

const texts = (events: readonly Told[], type: string): readonly unknown[] =>
  events.filter((event) => event.type === type).map(({ text }) => text);

describe("a conversation of the control API", () => {
  it("tells from its transcript what is not kept as events any more, each message once and in order", () =>
    setUp(
      [say("first"), say("second"), LONG, say("last")],
      { persist: false },
      async (_, start) => {
        const conversation = await start();
        for (const [at, message] of ["a", "b", "c", "d"].entries()) {
          conversation.send(message);
          await read(conversation, 0, "runComplete", at + 1);
        }
        const all = await read(conversation, 0, "runComplete", 4);
        assert.deepEqual(texts(all, "message"), ["a", "b", "c", "d"]);
        assert.ok(!all.some(({ type }) => type === "gap"));
        const said = texts(all, "textDelta").join("|");
        assert.ok(said.startsWith("first|second|0 1 2") && said.endsWith("2099 |last"));
        const numbers = all.map(({ seq }) => seq);
        assert.deepEqual(
          numbers,
          numbers.toSorted((a, b) => a - b),
        );
        // A reader that was away goes on where it was.
        const second = all.find(({ type, text }) => type === "message" && text === "b");
        const late = await read(conversation, second?.seq ?? 0, "runComplete", 3);
        assert.deepEqual(texts(late, "message"), ["c", "d"]);
      },
    ));

  it("goes on after it was closed, from what is kept of it, until it is forgotten", () =>
    setUp([say("first"), say("second")], {}, async (conversations, start) => {
      const before = await start();
      before.send("one");
      await read(before, 0, "runComplete");
      const { id } = before.session;
      assert.deepEqual([before.document.kept, before.document.title], [true, "one"]);
      conversations.close(before);
      assert.equal(await conversations.get(id), undefined);
      const [kept] = await conversations.kept();
      assert.deepEqual([kept?.id, kept?.title], [id, "one"]);
      const [again, same] = await Promise.all([conversations.resume(id), conversations.resume(id)]);
      assert.ok(again !== undefined && again === same);
      assert.deepEqual([again.document.title, again.document.tokensUsed], ["one", 15]);
      again.send("two");
      const all = await read(again, 0, "runComplete", 2);
      assert.deepEqual(texts(all, "message"), ["one", "two"]);
      assert.deepEqual(texts(all, "textDelta"), ["first", "second"]);
      assert.equal(await conversations.forget(id, AbortSignal.timeout(10_000)), true);
      assert.deepEqual(await conversations.kept(), []);
      assert.equal(await conversations.resume(id), undefined);
      assert.equal(await conversations.forget(id, AbortSignal.timeout(10_000)), false);
    }));

  it("is closed in every hub that has it open when it is forgotten in one", () => {
    const model = new TurnModel([say("first")]);
    return setUp(model, {}, async (conversations, start, other, opened) => {
      const uses: readonly ((id: string) => Promise<unknown>)[] = [
        async () => (await other.all())[0],
        (id) => other.get(id),
        (id) => other.resume(id),
      ];
      for (const use of uses) {
        const one = await start();
        one.send("secret");
        await read(one, 0, "runComplete");
        const { id } = one.session;
        const there = await other.resume(id);
        assert.ok(there !== undefined);
        assert.equal((await other.all())[0], there);
        const reading = read(there, 0, "never");
        assert.equal(await conversations.forget(id, AbortSignal.timeout(10_000)), true);
        assert.equal(await use(id), undefined);
        // Readers of its events see the end, and nothing of it is left.
        await reading;
        assert.equal(there.session.transcript.messages.length, 0);
        assert.deepEqual(
          [opened.count, await other.forget(id, AbortSignal.timeout(10_000))],
          [0, false],
        );
      }
      // A message that is on its way when it is forgotten is refused.
      const one = await start();
      one.send("secret");
      await read(one, 0, "runComplete");
      const there = await other.resume(one.session.id);
      assert.ok(there !== undefined);
      const asked = model.requests.length;
      await conversations.forget(one.session.id, AbortSignal.timeout(10_000));
      there.send("and?");
      const [error] = (await read(there, 0, "error")).slice(-1);
      assert.deepEqual([error?.["code"], model.requests.length], ["sessionNotFound", asked]);
    });
  });

  it("is opened once, however many ask for it, and at whatever time", () =>
    setUp([say("first")], {}, async (conversations, start, _, opened) => {
      const before = await start();
      before.send("one");
      await read(before, 0, "runComplete");
      const { id } = before.session;
      conversations.close(before);
      // Each asks a few turns of the event loop later than the one before it.
      const asks = Array.from({ length: 40 }, async (__, at) => {
        for (let turn = 0; turn < at; turn++) await new Promise((resolve) => setImmediate(resolve));
        return conversations.resume(id);
      });
      const all = await Promise.all(asks);
      assert.ok(all[0] !== undefined && new Set(all).size === 1);
      assert.ok(all.every((one) => one?.session.transcript.messages.length === 2));
      assert.deepEqual([opened.count, (await conversations.all()).length], [1, 1]);
    }));

  it("says how many messages the model does not get any more, and still tells them", () => {
    const turns = Array.from({ length: 4 }, (_, at) =>
      say(`${at} ${"y".repeat(3000)}`, {} as never),
    );
    const model = new TurnModel(turns, { contextTokens: 2000 });
    return setUp(model, { persist: false }, async (_, start) => {
      const conversation = await start();
      for (let at = 0; at < 4; at++) {
        conversation.send(`message ${at}`);
        await read(conversation, 0, "runComplete", at + 1);
      }
      const { leftOut = 0 } = conversation.document;
      assert.ok(leftOut > 0);
      const all = await read(conversation, 0, "runComplete", 4);
      assert.equal(texts(all, "message").length, 4);
    });
  });

  it("is not kept of an agent with persist = false", () =>
    setUp([say("first")], { persist: false }, async (conversations, start) => {
      const conversation = await start();
      conversation.send("one");
      await read(conversation, 0, "runComplete");
      assert.equal(conversation.document.kept, false);
      conversations.close(conversation);
      assert.deepEqual(await conversations.kept(), []);
    }));
});
