import assert from "node:assert/strict";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { run, runJson } from "../harness/command.ts";
import {
  EXIT_LIMIT,
  executable,
  itWith,
  shareInSuite,
  type TestFolder,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted, toToml } from "../harness/manifest.ts";
import type { RpcMessage } from "../harness/message.ts";
import { type NatsServer, SKIP_WITHOUT_NATS, startNats } from "../harness/nats.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll, waitFor, waitUntil } from "../harness/wait.ts";

const it = itWith({ skip: SKIP_WITHOUT_NATS, timeout: 90_000 });
const CALLS = 30;
/** Time within which each call that was open must have been told of the loss, in ms; a busy machine takes longer. */
const TOLD_LIMIT = 20_000;
/** Times within which all open calls are told, in ms: 1,500 and 4,500, with room for a busy machine. */
const TOLD = { kill: 6_000, freeze: 12_000 } as const;

interface StatusJson {
  readonly servers: readonly {
    readonly name: string;
    readonly transport: string;
    readonly endpoint: string;
  }[];
}

interface FleetFolder extends TestFolder {
  readonly nats: NatsServer;
  /** Starts a hub that exports the server `job`, which writes its log as server NAME. */
  exporter(name: string): RawClient;
  /** A client on stdio of a hub that imports all; it waits until there are these hubs. */
  importer(...hubs: readonly string[]): Promise<RawClient>;
}

/** One NATS server for all tests, and the hubs of each test. */
function sharedFleet(): () => FleetFolder {
  return shareInSuite<FleetFolder>((use) =>
    withTestFolder({ servers: {} }, async (folder) => {
      if (SKIP_WITHOUT_NATS !== false) return use({ ...folder } as FleetFolder);
      const nats = await startNats(join(folder.dir, "nats"));
      const all: RawClient[] = [];
      const start = (name: string, manifest: string, ...args: string[]): RawClient => {
        const file = join(folder.dir, `${name}.toml`);
        writeFileSync(file, manifest);
        const hub = new RawClient(
          executable(),
          ["serve", ...args, "--log-level", "info", "--config", file],
          folder.dir,
          folder.env,
        );
        all.push(hub);
        return hub;
      };
      const exporter = (name: string): RawClient => {
        const job = scripted("", { env: { SCRIPTED_LOG: join(folder.dir, `${name}.log`) } });
        const manifest = toToml({ servers: { job } });
        const fleet = `[fleet]\nurl = "${nats.url}"\nname = "${name}"\nexport = ["job"]\n`;
        return start(name, `${fleet}${manifest}`, "--http", "127.0.0.1:0");
      };
      const importer = async (...hubs: readonly string[]): Promise<RawClient> => {
        const fleet = `[fleet]\nurl = "${nats.url}"\nname = "client"\nimport = ["*"]\n`;
        const client = start("client", fleet);
        await client.initialize("2025-11-25", { sampling: {} });
        for (const hub of hubs)
          await client.until(
            20_000,
            `hub ${hub}`,
            () => client.stderr.includes(`"${hub}" has joined`) || undefined,
          );
        await waitForJob(client);
        return client;
      };
      await use({ ...folder, nats, exporter, importer });
      for (const hub of all) {
        hub.signal("SIGCONT");
        hub.end();
        hub.signal("SIGTERM");
      }
      await Promise.all(all.map((hub) => hub.waitForExit(EXIT_LIMIT)));
      await nats.stop();
      return undefined;
    }),
  );
}

/** Waits until a call of the server succeeds. */
async function waitForJob(client: RawClient, ms = 30_000): Promise<void> {
  await waitUntil(
    "a call of the server",
    async () => {
      const { result } = (await client.call("job__echo", { n: 1 })).message;
      return (result !== undefined && result["isError"] !== true) || undefined;
    },
    ms,
  );
}

/** Opens calls that never end. @returns the name of the hub that got them, and a wait for all their answers */
async function openCalls(
  { log }: TestFolder,
  client: RawClient,
  hubs: readonly string[],
): Promise<{ readonly at: string; readonly answers: () => Promise<readonly RpcMessage[]> }> {
  const before = new Map(
    hubs.map((hub) => [hub, log(hub).filter(({ tool }) => tool === "hang").length]),
  );
  const ids = Array.from({ length: CALLS }, () => client.sendCall("job__hang"));
  const at = await poll(
    20_000,
    () => "the calls",
    () =>
      hubs.find(
        (hub) =>
          log(hub).filter(({ tool }) => tool === "hang").length === (before.get(hub) ?? 0) + CALLS,
      ),
  );
  const answers = async (): Promise<readonly RpcMessage[]> =>
    (await Promise.all(ids.map((id) => client.response(id, TOLD_LIMIT)))).map(
      ({ message }) => message,
    );
  return { at, answers };
}

function textOf(message: RpcMessage): string {
  return JSON.stringify(message.error ?? message.result);
}

describe("a fleet over a NATS server", () => {
  const fleet = sharedFleet();

  it("tells each of 30 calls in time when its hub is killed, and when it stands still, calls the other hub, and knows the hub again when it goes on", async () => {
    const folder = fleet();
    const hubs = { h1: folder.exporter("h1"), h2: folder.exporter("h2") };
    const client = await folder.importer("h1", "h2");
    const first = await openCalls(folder, client, ["h1", "h2"]);
    const killed = first.at as "h1" | "h2";
    const killedAt = performance.now();
    hubs[killed].signal("SIGKILL");
    const told = await first.answers();
    const killTime = performance.now() - killedAt;
    assert.ok(killTime < TOLD.kill, `told after ${killTime} ms`);
    for (const message of told)
      assert.match(
        textOf(message),
        new RegExp(`machine .+${killed}.+ left the fleet.+may have run`),
      );
    const other = killed === "h1" ? "h2" : "h1";
    await waitForJob(client);
    hubs[killed] = folder.exporter(killed);
    const seen = client.stderr.length;
    await client.until(
      20_000,
      "the hub",
      () => client.stderr.slice(seen - 500).includes(`"${killed}" has joined`) || undefined,
    );
    const second = await openCalls(folder, client, [other]);
    assert.equal(second.at, other);
    const frozenAt = performance.now();
    hubs[other].signal("SIGSTOP");
    const toldOfFreeze = await second.answers();
    const freezeTime = performance.now() - frozenAt;
    assert.ok(freezeTime < TOLD.freeze, `told after ${freezeTime} ms`);
    for (const message of toldOfFreeze)
      assert.match(
        textOf(message),
        new RegExp(`machine .+${other}.+ left the fleet: it does not answer`),
      );
    await waitForJob(client);
    const before = client.stderr.length;
    hubs[other].signal("SIGCONT");
    await client.until(
      20_000,
      "the hub that goes on",
      () => client.stderr.slice(before).includes(`"${other}" has joined`) || undefined,
    );
    client.end();
    for (const hub of Object.values(hubs)) hub.signal("SIGTERM");
    await Promise.all(Object.values(hubs).map((hub) => hub.waitForExit(EXIT_LIMIT)));
  });

  it("goes on when NATS was restarted, and tells a freeze of NATS as the loss of the own connection", async () => {
    const folder = fleet();
    const hub = folder.exporter("h3");
    const client = await folder.importer("h3");
    await folder.nats.restart();
    await waitForJob(client);
    const open = await openCalls(folder, client, ["h3"]);
    folder.nats.freeze();
    const answers = await open.answers();
    folder.nats.thaw();
    for (const message of answers) {
      assert.match(textOf(message), /connection to NATS at .+ was lost/);
      assert.doesNotMatch(textOf(message), /left the fleet/);
    }
    await waitForJob(client);
    client.end();
    hub.signal("SIGTERM");
    await hub.waitForExit(EXIT_LIMIT);
  });

  it("carries a result of 60 MB, progress, a cancellation and a question over NATS with its defaults, and status says from where", async () => {
    const folder = fleet();
    const hub = folder.exporter("h4");
    const client = await folder.importer("h4");
    const size = 60 * 1024 * 1024;
    const { message } = await client.call("job__big", { bytes: size }, 60_000);
    assert.ok(JSON.stringify(message.result).length >= size);
    const asked = client.sendCall("job__ask");
    const question = await client.find(
      ({ method }) => method === "sampling/createMessage",
      "the question",
    );
    const answer = { role: "assistant", content: { type: "text", text: "yes" }, model: "m" };
    client.send({ jsonrpc: "2.0", id: question.message.id, result: answer });
    assert.match(textOf((await client.response(asked)).message), /yes/);
    const token = "t-1";
    client.sendRequest("tools/call", {
      name: "job__progress",
      arguments: { steps: 2, ms: 10 },
      _meta: { progressToken: token },
    });
    await client.find(
      ({ method, params }) =>
        method === "notifications/progress" && params?.["progressToken"] === token,
      "progress",
    );
    const id = client.sendCall("job__hang", {}, "h-1");
    await folder.waitForEvent("h4", ({ event, tool }) => event === "call" && tool === "hang");
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id } });
    await folder.waitForEvent("h4", ({ event }) => event === "cancelled");
    const config = join(folder.dir, "client.toml");
    const place = /"job" of the fleet, on h4 \(mcp\.v1\.req\.default\._\.job\.>\)/;
    const running = { ...folder, config };
    const [text, document] = [
      await run(running, "status"),
      await runJson<StatusJson>(running, "status"),
    ];
    assert.match(text.stdout.replaceAll(/\s+/g, " "), place);
    const [server] = document.servers;
    assert.deepEqual([server?.name, server?.transport], ["job", "fleet"]);
    assert.match(server?.endpoint ?? "", place);
    client.end();
    hub.signal("SIGTERM");
    await hub.waitForExit(EXIT_LIMIT);
    await waitFor("the end of the importer", () => client.exit, 10_000);
  });

  it("is begun by the commands and files that docs/fleet.md shows first", async () => {
    const { dir, env, nats } = fleet();
    const page = readFileSync(new URL("../../docs/fleet.md", import.meta.url), "utf8");
    const ported = page.replaceAll("127.0.0.1:4222", `127.0.0.1:${nats.port}`);
    for (const [, file = "", text = ""] of ported.matchAll(
      /^`(h\d\.toml)`:\n\n```toml\n([^]*?)```/gm,
    ))
      writeFileSync(join(dir, file), text);
    const [, block = ""] = /```sh\n([^]*?)```/.exec(page) ?? [];
    const [server, first = "", second = ""] = block.trim().split("\n");
    assert.match(server ?? "", /^nats-server -a 127\.0\.0\.1 &$/);
    const bin = join(dir, "bin");
    mkdirSync(bin);
    symlinkSync(executable(), join(bin, "toolmux"));
    const memory = new URL(
      "../../node_modules/@modelcontextprotocol/server-memory/dist/index.js",
      import.meta.url,
    );
    const runtime = `#!/bin/sh\nexec ${JSON.stringify(process.execPath)} ${JSON.stringify(fileURLToPath(memory))}\n`;
    writeFileSync(join(bin, "npx"), runtime, { mode: 0o755 });
    const own = {
      ...env,
      PATH: `${bin}:${env["PATH"]}`,
      MEMORY_FILE_PATH: join(dir, "memory.json"),
    };
    const start = (line: string): RawClient => {
      const [program, ...args] = line.replace(/ &$/, "").split(" ");
      assert.equal(program, "toolmux");
      return new RawClient(executable(), args, dir, own);
    };
    const hub = start(first);
    await hub.until(20_000, "the address", () => hub.stderr.includes("serving") || undefined);
    const exported = async (): Promise<readonly unknown[]> => {
      const config = join(dir, "h1.toml");
      const { hubs } = await runJson<{ hubs: readonly { exported: readonly unknown[] }[] }>(
        { dir, env: own, config },
        "fleet",
        "ping",
      );
      return hubs.flatMap((each) => each.exported);
    };
    await waitUntil("the export", async () =>
      (await exported().catch(() => [])).length > 0 ? true : undefined,
    );
    const fresh = await runJson<StatusJson>(
      { dir, env: own, config: join(dir, "h2.toml") },
      "status",
    );
    assert.match(fresh.servers[0]?.endpoint ?? "", /"memory" of the fleet, on h1 \(mcp\.v1\./);
    const call = start(second);
    assert.deepEqual(await call.waitForExit(30_000), { code: 0, signal: null });
    const shown = call.lines.map(({ text }) => text).join("");
    assert.deepEqual(JSON.parse(shown), { entities: [], relations: [] });
    hub.signal("SIGTERM");
    await hub.waitForExit(EXIT_LIMIT);
  });
});
