import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  appendFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { holdLock } from "../../src/agent/conversation-file.ts";
import {
  clientPrincipal,
  ConversationStore,
  type ConversationStoreOptions,
  USER,
} from "../../src/agent/conversation-store.ts";
import { AgentSession } from "../../src/agent/session.ts";
import {
  FunctionToolbox,
  say,
  setUpAgents,
  textResult,
  TurnModel,
  use,
} from "../fixtures/agents.ts";

const signal = new AbortController().signal;
const DAY = 24 * 60 * 60_000;
const HEADER = { id: "one", agent: "main", from: "/m.toml", created: 1 };

async function inFolder(
  work: (setup: {
    readonly store: ConversationStore;
    readonly folder: string;
    readonly warnings: string[];
    readonly path: string;
    readonly reopen: (more?: Partial<ConversationStoreOptions>) => ConversationStore;
  }) => Promise<void>,
  options: Partial<ConversationStoreOptions> = {},
): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "conversations-"));
  const warnings: string[] = [];
  const reopen = (more: Partial<ConversationStoreOptions> = {}): ConversationStore =>
    new ConversationStore({
      stateFolder: folder,
      mask: (text) => text.replaceAll("s3cret", "***"),
      warn: (text) => void warnings.push(text),
      ...options,
      ...more,
    });
  const path = join(folder, "conversations", USER, "one.jsonl");
  try {
    await work({ store: reopen(), folder, warnings, path, reopen });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** A session whose conversation is kept in the file of this store: a new one, or the one with the id `one`. */
async function sessionIn(
  store: ConversationStore,
  model: TurnModel,
  toolbox = new FunctionToolbox(),
): Promise<AgentSession> {
  const setup = setUpAgents({ main: model }, toolbox);
  const found = await store.find(USER, "one");
  const file = found ?? (await store.begin(USER, HEADER));
  const session = new AgentSession(await setup.agent(), { id: "one", clock: setup.clock, file });
  if (found !== undefined) await session.load(signal);
  return session;
}

async function ask(session: AgentSession, text: string): Promise<void> {
  for await (const _ of session.send(text, { signal }));
}

describe("a conversation that is kept", () => {
  it("goes on in another process with all that was said and used, in a file that only the user can read", () =>
    inFolder(async ({ store, path }) => {
      const toolbox = new FunctionToolbox({ a: () => textResult("found") });
      const first = await sessionIn(store, new TurnModel([use("a"), say("one")]), toolbox);
      await ask(first, "remember 7");
      assert.equal((await stat(path)).mode & 0o777, 0o600);
      const model = new TurnModel([say("two")]);
      const second = await sessionIn(store, model);
      assert.equal(second.transcript.messages.length, 4);
      assert.deepEqual([second.tokensUsed, second.state], [30, "idle"]);
      await ask(second, "and?");
      const asked = model.requests[0]?.messages ?? [];
      assert.deepEqual(
        asked.map(({ role }) => role),
        ["user", "assistant", "tool", "assistant", "user"],
      );
      // The first process sees what the second one has added, before it adds its own.
      await ask(first, "still there?");
      assert.deepEqual(
        first.transcript.messages.map(({ text }) => text),
        ["remember 7", "", "found", "one", "and?", "two", "still there?", "one"],
      );
      assert.equal((await sessionIn(store, model)).transcript.messages.length, 8);
      assert.deepEqual(await readdir(join(path, "..")), ["one.jsonl"]);
    }));

  it("loses a last line that was written in part, and nothing else, wherever it was cut", () =>
    inFolder(async ({ store, path }) => {
      await ask(await sessionIn(store, new TurnModel([say("one")])), "question");
      const whole = await readFile(path);
      const lastLine = whole.subarray(0, -1).lastIndexOf("\n") + 1;
      for (let end = lastLine; end < whole.length; end += 7) {
        await writeFile(path, whole.subarray(0, end));
        const session = await sessionIn(store, new TurnModel([say("two")]));
        assert.deepEqual(
          session.transcript.messages.map(({ text }) => text),
          ["question", "one"],
        );
        await ask(session, "more");
        const lines = (await readFile(path, "utf8")).trimEnd().split("\n");
        assert.ok(lines.every((line) => JSON.parse(line) !== undefined));
      }
    }));

  it("goes on with calls that have results and results that have calls, whichever line is damaged", () =>
    inFolder(async ({ store, path, warnings }) => {
      const toolbox = new FunctionToolbox({ a: () => textResult("A"), b: () => textResult("B") });
      const first = await sessionIn(store, new TurnModel([use("a", "b"), say("one")]), toolbox);
      await ask(first, "question");
      const whole = await readFile(path, "utf8");
      const lines = whole.trimEnd().split("\n");
      assert.equal(lines.length, 7);
      for (let at = 1; at < lines.length; at++) {
        await writeFile(path, `${lines.with(at, `${lines[at]?.slice(0, 30)}\0`).join("\n")}\n`);
        const model = new TurnModel([say("two")]);
        const session = await sessionIn(store, model);
        await ask(session, "more");
        const sent = model.requests[0]?.messages ?? [];
        assert.equal(
          sent.map(({ role }) => role).join(" "),
          `user assistant tool tool${at === 5 ? "" : " assistant"} user`,
        );
        const calls = sent.flatMap((one) => (one.role === "assistant" ? one.toolCalls : []));
        const results = sent.flatMap((one) => (one.role === "tool" ? [one.toolCallId] : []));
        assert.deepEqual(
          results.toSorted(),
          calls.map(({ id }) => id),
        );
        // People read what the model gets, and the answer to it.
        assert.equal(session.transcript.messages.length, sent.length + 1);
        assert.equal(warnings.length, at);
        assert.match(warnings[at - 1] ?? "", /^1 message of the conversation "one" cannot be read/);
      }
    }));

  it("answers calls that a killed process has not answered as cancelled", () =>
    inFolder(async ({ store, path }) => {
      await ask(await sessionIn(store, new TurnModel([say("one")])), "question");
      const toolCalls = [{ id: "x", name: "a", argumentsJson: "{}" }];
      const cut = { role: "assistant", at: 1, agent: "main", text: "", toolCalls };
      await appendFile(path, `${JSON.stringify(cut)}\n{"role":"tool","at":1,"toolCa`);
      const session = await sessionIn(store, new TurnModel([say("two")]));
      const last = session.transcript.messages.at(-1);
      assert.ok(last?.role === "tool" && last.isError && last.toolCallId === "x");
      // The result is in the file, too.
      const again = await sessionIn(store, new TurnModel([say("two")]));
      assert.equal(again.transcript.messages.length, session.transcript.messages.length);
    }));

  it("is masked before it is written", () =>
    inFolder(async ({ store, path, warnings }) => {
      const toolbox = new FunctionToolbox({ a: () => textResult("it is s3cret") });
      const turns = [use(["a", '{"key":"s3cret"}']), say("s3cret!")];
      await ask(await sessionIn(store, new TurnModel(turns), toolbox), "my s3cret");
      const text = await readFile(path, "utf8");
      assert.doesNotMatch(text, /s3cret/);
      assert.equal(text.match(/\*\*\*/g)?.length, 4);
      assert.deepEqual(warnings, []);
    }));

  it("belongs to its principal: another one does not find it, and no id leaves the folder", () =>
    inFolder(async ({ store, folder }) => {
      await ask(await sessionIn(store, new TurnModel([say("one")])), "question");
      const a = await clientPrincipal(folder, "a", "token");
      const others = [
        a,
        await clientPrincipal(folder, "a", "other"),
        await clientPrincipal(folder, "b", "token"),
      ];
      assert.equal(new Set([...others, USER]).size, 4);
      assert.equal(await clientPrincipal(folder, "a", "token"), a);
      for (const principal of others) {
        assert.equal(await store.find(principal, "one"), undefined);
        assert.deepEqual(await store.list(principal), []);
        assert.equal(await store.forget(principal, "one", signal), false);
        for (const id of [`../${USER}/one`, "..", "", "one.jsonl", "/etc/passwd"])
          assert.equal(await store.find(principal, id), undefined);
      }
      assert.ok(await store.find(USER, "one"));
    }));

  it("cannot be used by two processes at once", () =>
    inFolder(async ({ store, path }) => {
      const session = await sessionIn(store, new TurnModel([say("one")]));
      await ask(session, "question");
      const release = await holdLock(`${path}.lock`, signal);
      const controller = new AbortController();
      const waiting = (async () => {
        for await (const _ of session.send("x", { signal: controller.signal }));
      })();
      controller.abort(new Error("I do not wait."));
      await assert.rejects(waiting, /I do not wait/);
      await release();
      await ask(session, "again");
      assert.equal(session.transcript.messages.length, 4);
    }));

  it("goes on when its file cannot be written, with one warning, and is written when that is possible again", () =>
    inFolder(async ({ store, path, warnings }) => {
      const session = await sessionIn(store, new TurnModel([say("one")]));
      // A folder at the place of the file stands for a disk that takes nothing.
      await mkdir(path, { recursive: true });
      for (const text of ["a", "b"]) await ask(session, text);
      assert.equal(session.transcript.messages.length, 4);
      assert.equal(warnings.length, 1);
      assert.match(warnings[0] ?? "", /goes on, but cannot be kept \(.+\)/);
      await rm(path, { recursive: true });
      await ask(session, "c");
      const again = await sessionIn(store, new TurnModel([say("two")]));
      assert.equal(again.transcript.messages.length, 6);
      assert.equal(warnings.length, 1);
    }));

  it("is listed with its title, and forgotten for good, also where a session still has it", () =>
    inFolder(async ({ store, path, warnings }) => {
      const model = new TurnModel([say("one")]);
      const session = await sessionIn(store, model);
      assert.deepEqual(await store.list(USER), []);
      await ask(session, `What\nis "that"? ${"ü".repeat(50_000)}`);
      const [kept] = await store.list(USER);
      const { title = "", agent, from } = kept ?? {};
      assert.ok(title.startsWith('What is "that"? üüü'));
      assert.deepEqual([agent, from, title.length], ["main", "/m.toml", 80]);
      assert.equal(await store.forget(USER, "one", signal), true);
      assert.equal(await store.forget(USER, "one", signal), false);
      assert.equal(await session.isForgotten(), true);
      await assert.rejects(ask(session, "more"), { code: "sessionNotFound" });
      assert.deepEqual([session.transcript.messages.length, session.history.size], [0, 0]);
      assert.deepEqual([session.state, model.requests.length], ["closed", 1]);
      assert.deepEqual([await readdir(join(path, "..")), warnings], [[], []]);
    }));

  it("does not come back when it is forgotten while another process opens, reads or clears it", () =>
    inFolder(async ({ store, path }) => {
      const model = new TurnModel([say("one")]);
      for (const access of [
        (session: AgentSession) => session.load(signal),
        (session: AgentSession) => session.refresh(signal),
        (session: AgentSession) => session.clear(signal),
        (session: AgentSession) => ask(session, "more"),
      ]) {
        await ask(await sessionIn(store, model), "question");
        const setup = setUpAgents({ main: model }, new FunctionToolbox());
        const file = await store.find(USER, "one");
        const session = new AgentSession(await setup.agent(), {
          id: "one",
          clock: setup.clock,
          file,
        });
        assert.equal(await store.forget(USER, "one", signal), true);
        await assert.rejects(access(session), { code: "sessionNotFound" });
        assert.deepEqual(await readdir(join(path, "..")), []);
      }
    }));

  it("is emptied when the person clears it, also for the other sessions that have it", () =>
    inFolder(async ({ store }) => {
      const session = await sessionIn(store, new TurnModel([say("one")]));
      await ask(session, "first");
      const other = await sessionIn(store, new TurnModel([say("two")]));
      await session.clear(signal);
      assert.equal((await store.list(USER))[0]?.title, "");
      await ask(other, "second");
      assert.deepEqual(
        other.transcript.messages.map(({ text }) => text),
        ["second", "two"],
      );
    }));

  it("is read anew after another process has cleared it and said more than there was before", () =>
    inFolder(async ({ store }) => {
      const session = await sessionIn(store, new TurnModel([say("one")]));
      await ask(session, "first");
      const model = new TurnModel([say("three")]);
      const other = await sessionIn(store, model);
      await session.clear(signal);
      await ask(session, `second ${"x".repeat(5000)}`);
      await ask(other, "third");
      assert.deepEqual(
        other.transcript.messages.map(({ text }) => text.slice(0, 6)),
        ["second", "one", "third", "three"],
      );
      assert.doesNotMatch(JSON.stringify(model.requests[0]?.messages), /first/);
    }));

  it("is shown with what another process has added, and as it was while that one is at work", () =>
    inFolder(async ({ store, path }) => {
      const session = await sessionIn(store, new TurnModel([say("one")]));
      await ask(session, "first");
      const other = await sessionIn(store, new TurnModel([say("two")]));
      await ask(other, "second");
      // The lock of a process that lives: this one, which does not know that it holds it.
      const release = await holdLock(`${path}.lock`, signal);
      const held = await readFile(`${path}.lock`);
      await release();
      await writeFile(`${path}.lock`, held);
      await session.refresh(signal);
      assert.equal(session.transcript.messages.length, 2);
      await rm(`${path}.lock`);
      await session.refresh(signal);
      assert.equal(session.transcript.messages.length, 4);
      await ask(session, "third");
      assert.equal(session.transcript.messages.length, 6);
    }));

  it("has its first line again when only a part of it was written", () =>
    inFolder(async ({ store, path }) => {
      const file = await store.begin(USER, HEADER);
      await file.create();
      const header = await readFile(path, "utf8");
      await writeFile(path, header.trimEnd());
      await ask(await sessionIn(store, new TurnModel([say("one")])), "question");
      const [first = ""] = (await readFile(path, "utf8")).split("\n");
      assert.deepEqual(JSON.parse(first), JSON.parse(header));
      assert.equal((await store.list(USER))[0]?.title, "question");
    }));

  it("is forgotten when it is too old, or when all are too large, the oldest first", () =>
    inFolder(
      async ({ store, reopen }) => {
        const ids = ["a", "b", "c"];
        for (const [at, id] of ids.entries()) {
          const file = await store.begin(USER, { ...HEADER, id });
          await file.begin(signal);
          file.append({ role: "user", at: 1, text: "x".repeat(1000) });
          await file.end();
          const when = new Date(Date.now() - (10 - at) * DAY);
          await utimes(file.path, when, when);
        }
        const listed = async (): Promise<readonly string[]> =>
          (await store.list(USER)).map(({ id }) => id);
        assert.deepEqual(await listed(), ["c", "b", "a"]);
        await reopen({ limits: { maxAge: 30 * DAY, maxSize: 2500 } }).prune();
        assert.deepEqual(await listed(), ["c", "b"]);
        const strict = reopen({ limits: { maxAge: 8.5 * DAY, maxSize: 1e9 } });
        assert.equal(await strict.find(USER, "b"), undefined);
        await strict.prune();
        assert.deepEqual(await listed(), ["c"]);
        assert.deepEqual((await store.usage()).count, 1);
        // The limits of another manifest are for its own conversations.
        await reopen({ manifest: "other", limits: { maxAge: 1, maxSize: 1 } }).prune();
        assert.deepEqual(await listed(), ["c"]);
      },
      { limits: { maxAge: 90 * DAY, maxSize: 1e9 } },
    ));
});
