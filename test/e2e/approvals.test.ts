import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { run, runCommand, runJson, startOn, waitUntilFound } from "../harness/command.ts";
import {
  closeClient,
  executable,
  EXIT_LIMIT,
  type Hub,
  it,
  itWith,
  type TestFolder,
  withHub,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted, toToml } from "../harness/manifest.ts";
import type { Received } from "../harness/message.ts";
import type { RawClient } from "../harness/raw-client.ts";
import { waitUntil } from "../harness/wait.ts";
import { shownBy, skipWithoutTerminal, startInTerminal } from "../harness/terminal.ts";

const MANIFEST = {
  defaults: { approval: "always", approvalWait: 0 },
  servers: { s: scripted() },
};
/** Calls wait for somebody who watches. */
const WAITING = { ...MANIFEST, defaults: { approval: "always", approvalWait: "2m" } };
const FORMS = { elicitation: { form: {} } };

function errorCodeOf({ message: { result } }: Received): unknown {
  return (result?.["_meta"] as Readonly<Record<string, unknown>> | undefined)?.["toolmux/error"];
}

/** The text of a tool's result. */
function textOf({ message: { result } }: Received): string {
  const [part] = (result?.content ?? []) as readonly { readonly text?: string }[];
  return part?.text ?? "";
}

/** A hub whose calls all need an approval, with a client, when commands find it. */
function withApprovals(
  capabilities: object,
  use: (hub: Hub) => Promise<void>,
  manifest: Parameters<typeof withHub>[0] = MANIFEST,
): Promise<void> {
  return withHub(manifest, async (hub) => {
    await hub.client.initialize("2025-11-25", capabilities);
    await hub.client.request("tools/list");
    await waitUntilFound(hub, hub.client.pid);
    await use(hub);
  });
}

/** Runs `toolmux approvals --watch` in a terminal. */
async function startWatching(
  { dir, env, config }: Hub,
  args = `approvals --watch --config '${config}'`,
): Promise<RawClient> {
  const terminal = startInTerminal({ dir, env }, `'${executable()}' ${args}`);
  await waitForText(terminal, "watching");
  return terminal;
}

/** Waits until a terminal shows the text as often. */
function waitForText(terminal: RawClient, text: string, times = 1): Promise<true> {
  return terminal.until(10_000, `"${text}" for the ${times}. time`, () =>
    shownBy(terminal).split(text).length > times ? true : undefined,
  );
}

/** How many calls wait for an approval. */
async function openCalls(hub: TestFolder): Promise<number> {
  return (await runJson<{ approvals: readonly unknown[] }>(hub, "approvals")).approvals.length;
}

describe("toolmux approvals", () => {
  itWith({ skip: skipWithoutTerminal })(
    "--watch asks in the terminal for one call after the other, and each does as it is told",
    () =>
      withApprovals({}, async (hub) => {
        const { client } = hub;
        assert.equal(errorCodeOf(await client.call("s__echo")), "notApproved");
        const terminal = await startWatching(hub);
        const ids: (string | number)[] = [];
        for (const path of ["first", "second", "third"]) {
          ids.push(client.sendCall("s__echo", { path }));
          while ((await openCalls(hub)) < ids.length);
        }
        const [first, second, third] = ids;
        await waitForText(terminal, '"path": "first"');
        await waitForText(terminal, "Allow it?");
        terminal.write("y\r");
        const allowed = await client.response(first);
        assert.deepEqual(allowed.message.result?.structuredContent, { path: "first" });
        await waitForText(terminal, "Allow it?", 2);
        terminal.write("what\r");
        await waitForText(terminal, "Allow it?", 3);
        terminal.write("\r");
        assert.equal(errorCodeOf(await client.response(second)), "notApproved");
        await waitForText(terminal, "Allow it?", 4);
        client.send({
          jsonrpc: "2.0",
          method: "notifications/cancelled",
          params: { requestId: third },
        });
        await waitForText(terminal, "the call has ended");
        const fourth = client.sendCall("s__echo", { path: "fourth" });
        await waitForText(terminal, "Allow it?", 5);
        terminal.write("s\r");
        await client.response(fourth);
        await client.call("s__echo", { path: "fifth" });
        terminal.write("\u0003");
        await terminal.waitForExit(EXIT_LIMIT);
        const called = hub.log("s").flatMap((event) => (event.event === "call" ? [event] : []));
        assert.deepEqual(
          called.map((event) => event.arguments),
          ["first", "fourth", "fifth"].map((path) => JSON.stringify({ path })),
        );
      }),
  );

  itWith({ skip: skipWithoutTerminal })(
    "--watch drops what was typed before a question, also the beginning of a line",
    () =>
      withApprovals({}, async (hub) => {
        const { client } = hub;
        const terminal = await startWatching(hub);
        const first = client.sendCall("s__echo", { path: "first" });
        await waitForText(terminal, "Allow it?");
        const second = client.sendCall("s__echo", { path: "second" });
        while ((await openCalls(hub)) < 2);
        terminal.write("y");
        await waitForText(terminal, "[N]o: y");
        const params = { requestId: first };
        client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params });
        await waitForText(terminal, "Allow it?", 2);
        terminal.write("\r");
        assert.equal(errorCodeOf(await client.response(second)), "notApproved");
        const third = client.sendCall("s__echo", { path: "third" });
        await waitForText(terminal, "Allow it?", 3);
        terminal.write("y\r");
        assert.equal(errorCodeOf(await client.response(third)), undefined);
        terminal.write("\u0003");
        assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 130);
      }),
  );

  itWith({ skip: skipWithoutTerminal })(
    "can be given in a terminal with the command that the refusal names",
    () =>
      withApprovals({}, async (hub) => {
        const { client } = hub;
        const refused = await client.call("s__echo");
        const [, args] = /"toolmux (approvals [^"]*)"/.exec(textOf(refused)) ?? [];
        const terminal = await startWatching(hub, args ?? assert.fail(textOf(refused)));
        const id = client.sendCall("s__echo");
        await waitForText(terminal, "Allow it?");
        terminal.write("y\r");
        assert.equal(errorCodeOf(await client.response(id)), undefined);
        terminal.write("\u0003");
        await terminal.waitForExit(EXIT_LIMIT);
      }),
  );

  it("are asked for in a terminal, so the refusal of a command without one says so; a watcher would not find it", () =>
    withTestFolder(MANIFEST, async (folder) => {
      const { stdout, stderr } = await run(folder, "call", "s__echo");
      assert.match(stdout + stderr, /Ask the user to run the command in a terminal/);
      assert.doesNotMatch(stdout + stderr, /approvals --watch/);
    }));

  it("are not asked for by a hub without control API: the refusal names only the setting", () =>
    withHub({ ...MANIFEST, hub: { control: false } }, async ({ client }) => {
      await client.initialize();
      await client.request("tools/list");
      assert.match(textOf(await client.call("s__echo")), /Ask the user to set tools\.approval/);
    }));

  /** Calls the tool with `toolmux call` in a terminal, and answers the question about it. */
  async function callInTerminal({ dir, env, config }: TestFolder, key: string): Promise<void> {
    const line = `'${executable()}' call s__echo path=x --config '${config}'`;
    const terminal = startInTerminal({ dir, env }, line);
    await waitForText(terminal, "Allow it?");
    terminal.write(`${key}\r`);
    await terminal.waitForExit(EXIT_LIMIT);
  }

  function callCount({ log }: TestFolder): number {
    return log("s").filter(({ event }) => event === "call").length;
  }

  itWith({ skip: skipWithoutTerminal })(
    "are asked for by toolmux call in its own terminal, whether it starts the server or a running hub has it",
    async () => {
      const check = async (testFolder: TestFolder): Promise<void> => {
        await callInTerminal(testFolder, "n");
        assert.equal(callCount(testFolder), 0);
        await callInTerminal(testFolder, "y");
        assert.equal(callCount(testFolder), 1);
      };
      await withTestFolder(MANIFEST, check);
      await withApprovals({}, check);
    },
  );

  itWith({ skip: skipWithoutTerminal })("--watch asks for a hub that has started later, too", () =>
    withApprovals({}, async (hub) => {
      const terminal = await startWatching(hub);
      const later = startOn(hub);
      await later.initialize();
      await waitForText(terminal, "watching", 2);
      const id = later.sendCall("s__echo", { path: "later" });
      await waitForText(terminal, "Allow it?");
      terminal.write("y\r");
      assert.equal(errorCodeOf(await later.response(id)), undefined);
      await closeClient(later);
      terminal.write("\u0003");
      await terminal.waitForExit(EXIT_LIMIT);
    }),
  );

  it("shows open calls, and tools that a client has allowed for itself, until they are forgotten", () =>
    withApprovals(FORMS, async (hub) => {
      const { client } = hub;
      const id = client.sendCall("s__echo", { path: "x" });
      const form = await client.find(({ method }) => method === "elicitation/create", "the form");
      const open = await runJson<{ approvals: readonly { name: string }[] }>(hub, "approvals");
      assert.deepEqual(
        open.approvals.map(({ name }) => name),
        ["s__echo"],
      );
      const result = { action: "accept", content: { decision: "session" } };
      client.send({ jsonrpc: "2.0", id: form.message.id, result });
      await client.response(id);
      interface Remembered {
        readonly remembered: readonly Readonly<Record<"id" | "tool" | "decision" | "by", string>>[];
      }
      const { remembered } = await runJson<Remembered>(hub, "approvals", "list");
      assert.deepEqual(
        remembered.map(({ tool, decision, by }) => [tool, decision, by]),
        [["echo", "session", "client"]],
      );
      assert.equal(errorCodeOf(await client.call("s__echo")), undefined);
      assert.equal((await run(hub, "approvals", "forget", remembered[0]?.id ?? "")).code, 0);
      client.sendCall("s__echo", { path: "y" });
      await client.find(
        ({ method, params }) =>
          method === "elicitation/create" && String(params?.["message"]).includes('"y"'),
        "a form",
      );
    }));

  it("are decided without a terminal, each once: the second answer names who has decided, with exit code 2", () =>
    withApprovals(
      {},
      async (hub) => {
        const { client } = hub;
        const decide = (...words: readonly string[]) => run(hub, "approvals", ...words);
        const ids = ["first", "second", "third"].map((path) =>
          client.sendCall("s__echo", { path }),
        );
        while ((await openCalls(hub)) < ids.length);
        const { approvals } = await runJson<{
          approvals: readonly { readonly id: string; readonly argumentsShown: string }[];
        }>(hub, "approvals");
        const idOf = (path: string): string =>
          approvals.find(({ argumentsShown }) => argumentsShown.includes(path))?.id ??
          assert.fail();
        const [first, second, third] = [idOf("first"), idOf("second"), idOf("third")];
        for (const id of [first, second, third]) assert.match(id, /^call:\d+$/);
        assert.equal((await decide("allow", first)).code, 0);
        assert.equal(errorCodeOf(await client.response(ids[0])), undefined);
        assert.equal((await decide("deny", second.slice("call:".length))).code, 0);
        assert.equal(errorCodeOf(await client.response(ids[1])), "notApproved");
        const again = await decide("allow", second);
        assert.equal(again.code, 2);
        assert.match(again.stderr, /denied in a terminal/);
        // A process that a hub has started does not decide; other hubs above it do not matter.
        const args = ["approvals", "allow", third, "--config", hub.config];
        const inside = (pid: number | undefined) =>
          runCommand(hub, args, { env: { TOOLMUX_HUBS: `999999:a,${pid}:b` } });
        assert.equal((await inside(client.pid)).code, 2);
        assert.equal(await openCalls(hub), 1);
        assert.equal((await inside(999_998)).code, 0);
        await client.response(ids[2]);
        const fourth = client.sendCall("s__echo", { path: "fourth" });
        while ((await openCalls(hub)) === 0);
        assert.equal((await decide("allow", "call:4", "--always")).code, 0);
        const { remembered } = await runJson<{ remembered: readonly unknown[] }>(
          hub,
          "approvals",
          "list",
        );
        assert.equal(remembered.length, 1);
        await client.response(fourth);
      },
      WAITING,
    ));

  it("are decided by no tool of the hub itself, also if it hides TOOLMUX_HUBS", () =>
    withTestFolder("", async (folder) => {
      const code = join(folder.dir, "code");
      const ask = `env -u TOOLMUX_HUBS '${executable()}' approvals allow call:1 --config '${folder.config}'`;
      const script = `while [ ! -e go ]; do sleep 0.05; done; ${ask}; echo $? > '${code}.new'; mv '${code}.new' '${code}'; exec cat`;
      // Servers do not inherit the variables that say where hubs are found.
      const env = Object.fromEntries(
        Object.entries(folder.env).filter(([name]) => /^(?:XDG_|TOOLMUX_RUN)/.test(name)),
      );
      const tool = { command: "sh", args: ["-c", script], cwd: folder.dir, env };
      writeFileSync(folder.config, toToml({ ...WAITING, servers: { s: scripted(), tool } }));
      const client = startOn(folder);
      await client.initialize();
      await waitUntilFound(folder, client.pid);
      client.sendCall("s__echo", { path: "x" });
      while ((await openCalls(folder)) < 1);
      writeFileSync(join(folder.dir, "go"), "");
      await waitUntil("its exit code", async () => existsSync(code) || undefined);
      assert.equal(readFileSync(code, "utf8").trim(), "2");
      assert.equal(await openCalls(folder), 1);
      await closeClient(client);
    }));

  const WRONG: readonly (readonly string[])[] = [
    ["forget"],
    ["forget", "none"],
    ["forget", "--all", "x"],
    ["--all"],
    ["accept"],
    ["accept", "none"],
    ["allow"],
    ["deny"],
    ["allow", "call:99"],
    ["allow", "3f9a2c71"],
    ["allow", "call:1", "--session", "--always"],
    ["deny", "call:1", "--always"],
    ["--session"],
    ["show"],
    ["--watch", "list"],
    ["--watch", "--json"],
    ["--watch"],
  ];
  it("says what is wrong with its words, with exit code 2", () =>
    withApprovals({}, async (hub) => {
      for (const words of WRONG)
        assert.equal((await run(hub, "approvals", ...words)).code, 2, words.join(" "));
      assert.equal((await run(hub, "approvals", "accept", "s")).code, 0);
    }));
});
