import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { type CommandOutput, runCommand } from "../harness/command.ts";
import { RawClient } from "../harness/raw-client.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  executable,
  it,
  sharedHub,
  withHub,
  withTestFolder,
} from "../harness/hub.ts";
import { listChangedCount } from "../harness/controlled-servers.ts";
import { scripted } from "../harness/manifest.ts";
import { failureText } from "../harness/message.ts";
import { waitUntilExited } from "../harness/processes.ts";
import { poll } from "../harness/wait.ts";

function run(setup: TestFolder, ...args: readonly string[]): Promise<CommandOutput> {
  return runCommand(setup, args, { env: { TOOLMUX_KEYCHAIN: "off" } });
}

interface FindingJson {
  readonly code: string;
  readonly subject: string;
  readonly text: string;
  readonly advice?: string;
}

function findingsOf({ stdout }: CommandOutput): readonly FindingJson[] {
  return (JSON.parse(stdout) as { findings: readonly FindingJson[] }).findings;
}

const MODERN_META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": { name: "c", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};

describe("a server that dies in the middle of a call", () => {
  const { command, args = [] } = scripted("--name noisy");
  const script =
    'i=0; while [ $i -lt 30 ]; do echo "äöü line $i of much noise" >&2; i=$((i+1)); done; exec "$0" "$@"';
  const servers = {
    mortal: scripted("--name mortal --start-delay 50"),
    other: scripted(),
    noisy: { command: "sh", args: ["-c", script, command, ...args] },
  };
  const hub = sharedHub({ servers });

  it("fails that call with a result that has its exit or signal and its last stderr lines, and no call of others, as often as it dies", async () => {
    const { client } = hub();
    for (const code of [7, 20, 21]) {
      const { message } = await client.call("mortal__die", { code });
      assert.equal(message.result?.isError, true);
      const said = failureText(message);
      assert.match(said, new RegExp(`mortal[^]*\\b${code}\\b[^]*last words of mortal`));
      const other = await client.call("other__echo", { code });
      assert.deepEqual(other.message.result?.structuredContent, { code });
    }
    const { message } = await client.call("mortal__kill-self", { signal: "SIGKILL" });
    assert.match(failureText(message), /mortal[^]*SIGKILL/);
  });

  it("fails every other call that it had not answered, and no call to another server", async () => {
    const { client, waitForEvent: logged } = hub();
    const hanging = [client.sendCall("mortal__hang"), client.sendCall("mortal__hang")];
    const sleeping = client.sendCall("other__sleep", { ms: 300, n: 1 });
    await logged("other", ({ tool }) => tool === "sleep");
    const died = client.sendCall("mortal__die");
    for (const id of [...hanging, died])
      assert.match(failureText((await client.response(id)).message), /mortal/);
    const { message } = await client.response(sleeping);
    assert.deepEqual(message.result?.structuredContent, { ms: 300, n: 1 });
  });

  it("is started again by the next calls, once, even when 20 come at the same time, and stays listed all the while", async () => {
    const { client, log } = hub();
    const starts = (): number => log("mortal").filter(({ event }) => event === "start").length;
    const before = await client.request("tools/list");
    // Whatever the tests before have left of it is up by now.
    await client.call("mortal__echo");
    const started = starts();
    await client.call("mortal__die");
    const after = await client.request("tools/list");
    assert.deepEqual(after.message.result, before.message.result);
    const asked = Array.from({ length: 20 }, (_, at) => client.sendCall("mortal__echo", { at }));
    for (const [at, id] of asked.entries())
      assert.deepEqual((await client.response(id)).message.result?.structuredContent, { at });
    assert.equal(starts(), started + 1);
    assert.equal(listChangedCount(client), 0);
  });

  it("fails that call in the same way for a modern client", () =>
    withHub({ servers: { mortal: scripted("--name mortal") } }, async ({ client }) => {
      const params = { name: "mortal__die", arguments: { code: 7 }, _meta: MODERN_META };
      const { message } = await client.request("tools/call", params);
      assert.equal(message.result?.isError, true, JSON.stringify(message));
      assert.match(message.result.content?.[0]?.text ?? "", /last words of mortal/);
    }));

  it("has at most 500 bytes of stderr in what is said of it", async () => {
    const { message } = await hub().client.call("noisy__die");
    const [reason = "", ...lines] = (message.result?.content?.[0]?.text ?? "").split("\n");
    assert.match(reason, /noisy/);
    const stderr = lines.join("\n");
    assert.ok(Buffer.byteLength(stderr) <= 500, stderr);
    assert.match(stderr, /last words of noisy$/);
  });

  it("ends `toolmux call` with 3, and the reason on stderr", () =>
    withTestFolder({ servers: { mortal: scripted("--name mortal") } }, async (setup) => {
      const output = await run(setup, "call", "mortal__die", "--config", setup.config);
      assert.deepEqual([output.code, output.stdout], [3, ""]);
      assert.match(output.stderr, /mortal[^]*last words of mortal/);
    }));
});

/** What is said of a server that did not answer the handshake in time; the tool's own name is not enough. */
const UNANSWERED = /server "?mute[^]*(initialize|handshake|connect|1 ?s|1000 ?ms)/i;

describe("a server that never gets up", () => {
  it("is missing in the list of the others, and a call says whether it exits at once, is no command, or is silent until connectTimeout ends it", () => {
    const servers = {
      broken: scripted("--exit-at-once"),
      absent: { command: "no-such-command-anywhere" },
      mute: scripted("--never-answer-initialize", { connectTimeout: "1s" }),
      fine: scripted(),
    };
    return withHub({ servers }, async ({ client, waitForEvent: logged }) => {
      const listed = (await client.initializeAndList()).map(({ name }) => name);
      assert.ok(listed.length > 0 && listed.every((name) => name.startsWith("fine__")));
      const { pid } = await logged("mute", ({ event }) => event === "initialize");
      await waitUntilExited([pid], 8000);
      for (const [server, why] of [
        ["broken", /broken[^]*cannot open the database of scripted/],
        ["absent", /no-such-command-anywhere[^]*absent/],
        ["mute", UNANSWERED],
      ] as const)
        assert.match(failureText((await client.call(`${server}__echo`)).message), why);
      assert.equal((await client.call("fine__echo")).message.error, undefined);
    });
  });

  it("a call to it ends with the cause when its attempt to connect does", () =>
    withHub(
      {
        hub: { listWait: "100ms" },
        servers: { mute: scripted("--never-answer-initialize", { connectTimeout: "1s" }) },
      },
      async ({ client }) => {
        await client.initializeAndList();
        const { message } = await client.call("mute__echo", {}, 6000);
        assert.match(failureText(message), UNANSWERED);
      },
    ));
});

describe("a program that is not an MCP server", () => {
  it("is reported: one that echoes its input in one sentence, one that is not installed without PATH, which --log-level debug shows, and one that npm does not have with its name", () => {
    const unknownTo = (text: string) => {
      const script = `echo 'npm error code E404' >&2; echo "npm error 404  ${text}" >&2; exit 1`;
      return { command: "sh", args: ["-c", script] };
    };
    const servers = {
      echoing: { command: "cat" },
      missing: { command: "no-such-command" },
      old: unknownTo("'@nosuch/thing@1.0.0' is not in this registry."),
      recent: unknownTo(
        "The requested resource '@nosuch/thing@*' could not be found or you do not have permission to access it.",
      ),
    };
    return withTestFolder({ servers }, async (setup) => {
      const path = setup.env["PATH"] ?? "";
      const args = ["status", "--config", setup.config];
      const plain = await run(setup, ...args);
      assert.equal(plain.code, 3);
      assert.match(plain.stdout, /"echoing" echoes what it is sent/);
      assert.doesNotMatch(plain.stdout + plain.stderr, /\.\.(?:\s|$)/m);
      assert.match(plain.stdout, /"no-such-command" is not installed, or not in PATH/);
      assert.ok(!(plain.stdout + plain.stderr).includes(path));
      const { stdout, stderr } = await run(setup, ...args, "--json", "--log-level", "debug");
      assert.ok(stderr.includes(`PATH is ${path}`), stderr);
      const all = (JSON.parse(stdout) as { servers: { remedies: string[] }[] }).servers;
      assert.equal(all.length, 4);
      for (const { remedies } of all.slice(2)) {
        assert.equal(remedies.length, 1);
        assert.match(remedies[0] ?? "", /^npm has no package @nosuch\/thing\b/);
      }
    });
  });

  it("and whose url has another scheme is reported with that scheme", () =>
    withTestFolder({ servers: { a: { url: "htp://x.example/mcp" } } }, async (setup) => {
      const { stdout, stderr } = await run(setup, "status", "--config", setup.config);
      assert.match(stdout + stderr, /"htp:\/\/"[^]*must start with http:\/\/ or\s+https:\/\//);
    }));
});

describe("a server that writes much noise to stdout", () => {
  const { command, args = [] } = scripted("--bare --tool one");
  const script =
    'i=0; while [ $i -lt 250 ]; do echo "DEBUG noise"; i=$((i+1)); done; exec "$0" "$@"';
  const noisy = { command: "sh", args: ["-c", script, command, ...args] };

  it("costs the log of a hub a few lines, and `status` one note", () =>
    withTestFolder({ servers: { noisy } }, async (setup) => {
      const { stdout, stderr, code } = await run(setup, "status", "--config", setup.config);
      assert.equal(code, 0);
      assert.equal(stdout.match(/250 lines/g)?.length, 1, stdout);
      assert.ok((stderr.match(/DEBUG noise/g) ?? []).length <= 4, stderr);
    }));
});

describe("`toolmux doctor`", () => {
  it("reports a config that does not exist as missing, with exit code 2", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const file = join(setup.dir, "nosuch.toml");
      const output = await run(setup, "doctor", "--json", "--config", file);
      assert.equal(output.code, 2);
      const found = findingsOf(output).filter(({ code }) => code.startsWith("TM10"));
      assert.deepEqual(
        found.map(({ code, subject }) => [code, subject]),
        [["TM104", file]],
      );
      assert.doesNotMatch(JSON.stringify(found), /toolmux check/);
    }));

  it("reports a lost key of the secret store once, with all servers that need it", () =>
    withLostKey(async (setup) => {
      const output = await run(setup, "doctor", "--connect", "--json", "--config", setup.config);
      const found = findingsOf(output).filter(({ text }) => /secret store/.test(text));
      assert.deepEqual(
        found.map(({ code }) => code),
        ["TM304"],
        output.stdout,
      );
      assert.match(found[0]?.text ?? "", /"a", "b"/);
    }));
});

describe("`toolmux secret set`", () => {
  it("fails before it reads the value if the store cannot be used", () =>
    withLostKey(async (setup) => {
      const env = { ...setup.env, TOOLMUX_KEYCHAIN: "off" };
      const client = new RawClient(executable(), ["secret", "set", "other"], setup.dir, env);
      // Its stdin stays open: a command that waits for the value would not end.
      const { code } = await client.waitForExit(EXIT_LIMIT);
      assert.equal(code, 3);
      assert.match(client.stderr, /its key is missing/);
    }));
});

/** A folder with two servers that need a secret, and a secret store whose key is lost. */
function withLostKey(use: (setup: TestFolder) => Promise<void>): Promise<void> {
  const server = { ...scripted("--bare"), env: { TOKEN: "${secret:token}" } };
  return withTestFolder({ servers: { a: server, b: server } }, async (setup) => {
    const env = { ...setup.env, TOOLMUX_KEYCHAIN: "off" };
    const client = new RawClient(executable(), ["secret", "set", "token"], setup.dir, env);
    client.write("canary-value\n");
    client.end();
    assert.equal((await client.waitForExit(EXIT_LIMIT)).code, 0, client.stderr);
    rmSync(join(setup.dir, "config/toolmux/secrets/key"));
    await use(setup);
  });
}

describe("a port that is taken", () => {
  const serveAt = (setup: TestFolder, port: number): Promise<CommandOutput> =>
    run(setup, "serve", "--http", String(port), "--config", setup.config);

  it("by another toolmux is reported with its pid, its config and its address", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const all = ["serve", "--http", "127.0.0.1:0", "--config", setup.config];
      const hub = new RawClient(executable(), all, setup.dir, setup.env);
      const url = await hub.until(
        10_000,
        "the address",
        () => /http:[^\s"]+/.exec(hub.stderr)?.[0],
      );
      const { code, stderr } = await serveAt(setup, Number(new URL(url).port));
      assert.equal(code, 2);
      assert.match(stderr, /another toolmux/);
      assert.ok(stderr.includes(url), stderr);
      if (process.platform === "linux") assert.ok(stderr.includes(setup.config), stderr);
      assert.doesNotMatch(stderr, /Try: /);
      hub.signal("SIGTERM");
      await hub.waitForExit(EXIT_LIMIT);
    }));

  it("by another program is reported with that process", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const server = createServer();
      server.listen(0, "127.0.0.1");
      const address = await poll(
        5000,
        () => "its port",
        () => server.address() ?? undefined,
      );
      assert.ok(typeof address === "object");
      const { code, stderr } = await serveAt(setup, address.port);
      assert.equal(code, 2);
      assert.match(stderr, new RegExp(`^toolmux: .*Port ${address.port} is taken by`, "m"));
      if (process.platform === "linux") assert.ok(stderr.includes(`pid ${process.pid}`), stderr);
      assert.doesNotMatch(stderr, /Try: /);
      server.close();
    }));
});
