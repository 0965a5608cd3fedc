import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { appendFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { assertProtocolOnly, executable, itWith, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { RawClient } from "../harness/raw-client.ts";
import { SKIP_WITHOUT_SYSTEMD, withUserSystemd } from "../harness/systemd.ts";
import { waitUntil } from "../harness/wait.ts";

const EXIT_LIMIT = 10_000;

const it = itWith({ skip: SKIP_WITHOUT_SYSTEMD, timeout: 120_000 });

interface ServiceStatus {
  readonly state: string;
  readonly pid?: number;
}

describe("toolmux service under systemd", () => {
  it("takes the clients of a hub that was there before, comes again after a kill and a restart, and leaves nothing", () =>
    withTestFolder(
      { hub: { shared: true }, servers: { a: scripted() } },
      async ({ dir, env: given, config }) => {
        // The unit has no variables, so its hub has the folder of sockets that everybody has.
        const { TOOLMUX_RUN_DIR: _folder, ...env } = given;
        await withUserSystemd(env, async ([enter = "", ...inside]) => {
          /** Runs a command to its end, whatever its exit code. @returns its stdout */
          const run = (...words: readonly string[]): Promise<string> =>
            new Promise((resolve) => {
              const options = { env, cwd: dir, encoding: "utf8" } as const;
              execFile(enter, [...inside, ...words], options, (_, stdout) => resolve(stdout));
            });
          const toolmux = (...args: readonly string[]): Promise<string> =>
            run(executable(), ...args, "--config", config);
          const status = async (): Promise<ServiceStatus> =>
            JSON.parse(await toolmux("service", "status", "--json")) as ServiceStatus;
          const hubs = async (): Promise<readonly number[]> => {
            const text = await toolmux("daemon", "status", "--json");
            const { hubs: all } = JSON.parse(text) as { hubs: readonly { pid: number }[] };
            return all.map(({ pid }) => pid);
          };
          /** Whether the service runs the only hub. */
          const serves = async (): Promise<boolean> => {
            const { state, pid } = await status();
            assert.equal(state, "active");
            return String(await hubs()) === String(pid);
          };
          const client = new RawClient(
            enter,
            [...inside, executable(), "attach", "--config", config],
            dir,
            env,
          );
          const echo = async (): Promise<void> =>
            assert.equal((await client.call("a__echo")).message.error, undefined);

          await client.initializeAndList();
          const before = await hubs();
          await toolmux("service", "install");
          assert.equal((await status()).state, "active");
          assert.deepEqual(await hubs(), before, "the service waits");
          await toolmux("daemon", "restart");
          assert.ok(await serves());
          await echo();

          // Either the client or systemd is first to start the next one.
          await run("kill", "-9", String((await status()).pid));
          await waitUntil("an answer", async () =>
            (await client.call("a__echo")).message.error === undefined ? true : undefined,
          );
          await waitUntil("the service after a kill", async () =>
            (await status()).state === "active" ? true : undefined,
          );
          await toolmux("daemon", "restart");
          assert.ok(await serves());
          await echo();
          // The service's own hub this time.
          await toolmux("daemon", "restart");
          assert.ok(await serves());
          await echo();

          appendFileSync(config, '\n[servers.b]\ncommand = "false"\nlazy = true\n');
          await run("systemctl", "--user", "reload", "toolmux.service");
          await waitUntil("the second server", async () => {
            const text = await toolmux("status", "--json");
            const { servers } = JSON.parse(text) as { servers: readonly object[] };
            return servers.length === 2 ? true : undefined;
          });

          await toolmux("service", "remove");
          assert.ok(!existsSync(join(dir, "config", "systemd")));
          assert.deepEqual(await hubs(), []);
          await echo();
          client.end();
          await client.waitForExit(EXIT_LIMIT);
          assertProtocolOnly(client);
          await toolmux("daemon", "stop");
        });
      },
    ));
});
