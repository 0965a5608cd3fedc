import { renameSync, writeFileSync } from "node:fs";
import process from "node:process";
import { openPluginServer } from "../../src/plugin/provided-servers.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import { listToolNames } from "../fixtures/memory-hub.ts";
import type { ProcessReport } from "./plugin-process.ts";
import { ask, send, type PluginUnderTest, withPluginHub } from "./plugin-setup.ts";

/* Uses every function of plugins in this process, disposes of them, and writes a report of what they left behind to a file. */

const [, , file = "", subjects = "[]"] = process.argv;
let uncaught: string[] = [];
process.on("uncaughtException", (error) => uncaught.push(String(error)));
process.on("unhandledRejection", (error) => uncaught.push(String(error)));

const report: Record<string, readonly string[]> = {};
for (const subject of JSON.parse(subjects) as PluginUnderTest[]) {
  const before = processState();
  uncaught = [];
  await use(subject).catch((error: unknown) => void uncaught.push(String(error)));
  await turn();
  const after = processState();
  const changed = Object.keys(after).filter((key) => after[key] !== before[key]);
  const left = [...changed, ...uncaught];
  if (left.length > 0) report[subject.use] = left;
}
writeFileSync(`${file}.new`, JSON.stringify(report satisfies ProcessReport));
renameSync(`${file}.new`, file);

function use(subject: PluginUnderTest): Promise<void> {
  return withPluginHub(subject, async ({ client, script, tools, hub, instance }) => {
    const { onCall } = script;
    await listToolNames(client);
    for (const tool of tools) {
      for (const n of [1, 1, 2]) await ask(client, tool, `{"n":${n}}`);
      script.onCall = () => '"error":{"code":-32000,"message":"no"}';
      await ask(client, tool, '{"n":3}');
      script.onCall = () => undefined;
      const requestId = send(client, `{"name":"${tool}","arguments":{"n":4}}`);
      await turn();
      client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } });
      script.onCall = onCall;
    }
    await hub.settled();
    script.onCall = () => undefined;
    for (const startServer of Object.values(instance.hooks.servers ?? {}))
      await openPluginServer(startServer, undefined);
    // These calls are in flight when the hub ends.
    for (const tool of tools) send(client, `{"name":"${tool}","arguments":{"n":5}}`);
    await turn();
  });
}

/** The global state of the process. */
function processState(): Record<string, string | number> {
  const { polluted } = {} as { polluted?: unknown };
  return {
    "the working directory": process.cwd(),
    "the variables": JSON.stringify(Object.entries(process.env).map(String).toSorted()),
    "what all objects have": String(polluted),
    ...Object.fromEntries(
      ["exit", "beforeExit", "SIGINT", "SIGTERM", "SIGHUP", "uncaughtException"].map((name) => [
        `listeners for ${name}`,
        process.listenerCount(name),
      ]),
    ),
  };
}
